// Data parallel training: the ranks of a run, each with its rows of every step, make one update.
//
// One rank alone exchanges nothing and takes no memory here: its gradients and losses are the model's own,
// and what follows from its new weights is made behind the update. Of several, in a step: the weights that
// other ranks have updated arrive while the first layers already compute; gradients leave, bucket by bucket,
// while backward goes on; what the optimizer then updates is a rank's own update blocks, or everything where
// nothing is sharded. All calls are collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "core/tensor.h"
#include "data/sequence_source.h"
#include "device/device.h"
#include "model/gradient_hooks.h"
#include "model/llama.h"
#include "optim/optimizer.h"
#include "parallel/bucket_exchange.h"

namespace mpt {

class DataParallel final : public GradientHooks {
 public:
  // The parts of a training model. All outlive this.
  struct Model {
    WeightStore& weights;
    Llama& llama;
    Optimizer& optimizer;
  };
  // The rows of a step are cut over the ranks (data/dataloader.h slice_of). All outlive this.
  using Place = BucketExchange::Place;
  DataParallel(const RunConfig& config, const Model& model, const Place& place);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  [[nodiscard]] Communicator& ranks() const { return ranks_; }

  [[nodiscard]] ExchangeVolume volume() const;
  [[nodiscard]] const BucketExchange& exchange() const { return exchange_; }

  // A step, within its captured work: begins to fetch weights; gradients that are added from then on are
  // complete; rounds them, summed over the ranks; all ranks' sums of losses, fp64; behind the update, what
  // follows from the new weights of one rank alone: several fetch the others' first, in the next step.
  void begin_step();
  void begin_last_micro_batch() { last_micro_batch_ = true; }
  void finish_gradients();
  Tensor gather_losses();
  void end_update();
  // After a step's work was enqueued: weights of other ranks' update blocks are old.
  void end_step();
  // Makes all weights new, outside of a step.
  void all_gather_weights();

  // The sum of the losses of all ranks, after Device::synchronize().
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
  std::vector<char> new_;  // by group: whether GEMMs read what the last update made
  bool last_micro_batch_ = false;
  int64_t micro_batches_;            // that all take part in
  std::vector<int64_t> first_loss_;  // by rank, and their end
  PinnedBuffer losses_;              // [1, micro-batches of all ranks] fp64; none for one
};

// What all ranks of a run must agree on, checked by hashes.

// Throws Error on every rank, naming what differs and where, unless config, program and data are the same:
// the latter by their number of tokens and sequences here and there.
void check_same_start(Communicator& ranks, const RunConfig& config, const SequenceSource& training_data);

// Throws Error on every rank, naming the first tensor that differs and the ranks, unless all hold the same
// bytes.
void check_same_tensors(Communicator& ranks, const std::vector<NamedTensor>& tensors, Device& device);

}  // namespace mpt
