// Data parallel training: several ranks, each with its rows of every step, make one update.
//
// In a step: the weights that other ranks have updated arrive while the first layers already compute;
// gradients leave, bucket by bucket, while backward goes on; what the optimizer then updates is a rank's own
// units, or everything where nothing is sharded. All calls are collective.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collectives.h"
#include "model/llama.h"
#include "model/replicas.h"
#include "optim/optimizer.h"
#include "train/parameter_exchange.h"

namespace mpt {

class DataParallel final : public Replicas {
 public:
  // The parts of a training model. All outlive this.
  struct Model {
    WeightStore& weights;
    Llama& llama;
    Optimizer& optimizer;
  };
  // The rows of a step are cut over the ranks (data/dataloader.h slice_of). Null `collectives`: a plan.
  DataParallel(const RunConfig& config, RankShape shape, const Model& model, Device& device,
               Allocator& allocator, Collectives* collectives);

  [[nodiscard]] ExchangeVolume volume() const;
  [[nodiscard]] const ParameterExchange& exchange() const { return exchange_; }

  // A step, within its repeated work: begins to fetch weights; gradients that are added from then on are
  // complete; waits for the sums; all ranks' sums of losses, fp64.
  void begin_step();
  void begin_last_micro_batch() { last_micro_batch_ = true; }
  void finish_gradients();
  Tensor gather_losses();
  // After a step's work was enqueued: weights of other ranks' units are old.
  void updated();
  // Makes all weights new, outside of a step.
  void publish();

  // The sum of the losses of all ranks, after Device::synchronize().
  [[nodiscard]] double loss() const;

  void before_use(int64_t group) override;
  void gradients_added(int64_t group) override;
  void reduce_amax(const Tensor& values) override;

 private:
  using Ticket = Collectives::Ticket;

  [[nodiscard]] int64_t norm_bytes() const;
  [[nodiscard]] int64_t scale_bytes() const;
  [[nodiscard]] bool sharded() const { return sharding_ == Sharding::kOptimizer; }
  [[nodiscard]] size_t bucket_of(int64_t group) const;
  void use_new_weights(int64_t group);
  void wait(Ticket ticket);

  LlamaConfig config_;
  PrecisionConfig precision_;
  Sharding sharding_;
  RankShape shape_;
  Model model_;
  Device& device_;
  Collectives* collectives_;
  ParameterExchange exchange_;
  std::vector<Ticket> fetched_;  // by bucket
  std::vector<Ticket> reduced_;
  std::vector<char> new_;  // by group: whether products read what the last update made
  bool last_micro_batch_ = false;
  int64_t micro_batches_;            // that all take part in
  std::vector<int64_t> first_loss_;  // by rank, and their end
  Staged losses_;                    // [1, micro-batches of all ranks] fp64
};

}  // namespace mpt
