// Data-parallel training: each rank of a run computes its rows of every step, and all make one
// update.
//
// A single rank exchanges nothing and allocates nothing here; it refreshes what depends on the
// weights right after the update. With several ranks, the all-gather of weights that other ranks
// updated overlaps the first layers of forward, and gradients are reduced bucket by bucket during
// backward. The optimizer then updates the rank's own update blocks, or all weights without
// sharding. All calls are collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/named_tensor.h"
#include "core/tensor.h"
#include "data/mixture.h"
#include "device/device.h"
#include "model/gradient_hooks.h"
#include "model/llama.h"
#include "optim/optimizer.h"
#include "ranks/communicator.h"
#include "train/step/bucket_exchange.h"

namespace mpt {

class DataParallel final : public GradientHooks {
 public:
  // The parts of a training model. All must outlive this object.
  struct Model {
    WeightStore& weights;
    Llama& llama;
    Optimizer& optimizer;
  };
  // The rows of a step are divided among the ranks (data/dataloader.h slice_of). All members must
  // outlive this object.
  using Place = BucketExchange::Place;
  DataParallel(const RunConfig& config, const Model& model, const Place& place);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  [[nodiscard]] Communicator& ranks() const { return ranks_; }

  [[nodiscard]] ExchangeVolume volume() const;
  [[nodiscard]] const BucketExchange& exchange() const { return exchange_; }

  // The calls of a step, in this order, inside its captured work: begin_step() starts the
  // all-gather of weights; after begin_last_micro_batch() accumulated gradients are final;
  // finish_gradients() waits until they are summed over ranks and rounded; gather_losses() returns
  // the loss sums of all ranks, fp64; end_update() refreshes casts and scales of the new weights on
  // a single rank. Several ranks do so in the next step, after the all-gather.
  void begin_step();
  void begin_last_micro_batch() { last_micro_batch_ = true; }
  void finish_gradients();
  Tensor gather_losses();
  void end_update();
  // Call after a step's work was enqueued: marks the weights of other ranks' update blocks as
  // stale.
  void end_step();
  // Brings all weights up to date, outside a step.
  void all_gather_weights();

  // Returns the sum of all ranks' losses, after Device::synchronize().
  [[nodiscard]] double loss() const;

  void before_use(int64_t group) override;
  void gradients_added(int64_t group) override;
  void reduce_amax(const Tensor& values) override;

 private:
  using Event = Communicator::Event;

  [[nodiscard]] int64_t norm_bytes() const;
  [[nodiscard]] int64_t scale_bytes() const;
  [[nodiscard]] bool sharded() const { return sharding_ == Sharding::kOptimizer; }
  [[nodiscard]] size_t bucket_of(int64_t group) const;
  void use_new_weights(int64_t group);
  void wait(Event event);

  LlamaConfig config_;
  PrecisionConfig precision_;
  Sharding sharding_;
  Model model_;
  Device& device_;
  Communicator& ranks_;
  BucketExchange exchange_;
  std::vector<Event> fetched_;  // by bucket
  std::vector<Event> reduced_;
  std::vector<char> new_;  // by group: whether GEMMs read the updated weights
  bool last_micro_batch_ = false;
  int64_t micro_batches_;            // that every rank takes part in
  std::vector<int64_t> first_loss_;  // offsets by rank, and the end
  PinnedBuffer losses_;              // [1, micro-batches of all ranks] fp64; none for one rank
};

}  // namespace mpt
