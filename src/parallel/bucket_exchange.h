// What ranks exchange of gradients and weights, bucket by bucket: where each rank's part lies in memory, and
// how it travels.
//
// Parameters are exchanged in buckets of consecutive parameter groups (model/parameters.h). In each, a rank
// owns the update blocks that a Partition gives it. Gradients of everybody go to their owner in the format of
// the exchange; weights come from their owner as they are stored, codes and scales.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/partition.h"
#include "config/run_config.h"
#include "model/llama_config.h"
#include "model/weight_store.h"
#include "precision/codec_ops.h"

namespace mpt {

// Consecutive parameter groups that are exchanged together.
struct Bucket {
  int64_t first_group = 0, groups = 0;
  int64_t first_parameter = 0, parameters = 0;

  [[nodiscard]] int64_t last_group() const { return first_group + groups - 1; }
};
// As small as they can be with `least_bytes` of gradients each, counted from the last group on, whose
// gradients are complete first; in the order of groups. `element_bytes`: of a gradient that is exchanged.
struct BucketSize {
  int64_t least_bytes, element_bytes;
};
std::vector<Bucket> make_buckets(const LlamaConfig& config, const BucketSize& size);

// The update blocks of every parameter by rank: every bucket cut evenly, but for matrices that Apollo-E
// projects, which stay whole.
Partition partition_of(const RunConfig& config, int64_t ranks);

// Bytes that one rank sends in a step, every part once to each rank that needs it.
struct ExchangeVolume {
  int64_t gradients = 0;  // reduce-scatter, and the gather of sums where nothing is sharded
  int64_t weights = 0;    // all-gather
  int64_t norm = 0;       // sums of squares
  int64_t losses = 0;
  int64_t scales = 0;  // what they are found from

  [[nodiscard]] int64_t small() const { return norm + losses + scales; }
  [[nodiscard]] int64_t total() const { return gradients + weights + small(); }
};

// What goes round of a bucket in one direction, all ranks' parts of it.
struct PartsSummary {
  int64_t bytes = 0, largest_part_bytes = 0;  // as they travel
  int64_t memory_bytes = 0;                   // where they lie
  int64_t stretches = 0, own_stretches = 0;   // of memory; each is packed or unpacked by a copy
  int64_t cut_stretches = 0;                  // those that are not all of their tensor
};
struct BucketSummary {
  Bucket bucket;
  int64_t norm_sums = 0;       // reduction tiles whose squares are added
  PartsSummary reduced = {};   // gradients
  PartsSummary gathered = {};  // weights as they are stored; where nothing is sharded sums of gradients
};

class BucketExchange {
 public:
  // Everything is planned (or allocated) here: of one rank nothing, which has no buckets. All outlive this.
  struct Place {
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  BucketExchange(const RunConfig& config, const WeightStore& weights, const Place& place);

  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }
  // Gradients and weights of it.
  [[nodiscard]] ExchangeVolume volume() const;
  [[nodiscard]] std::vector<BucketSummary> summary() const;

  // Work of Communicator::run(): sums the gradients of a bucket over ranks, rounded to their format, into the
  // own update blocks of its parameters.
  void reduce_gradients(Transport& transport, size_t bucket);
  // The same of sums that every rank needs.
  void gather_gradients(Transport& transport, size_t bucket);
  // Fetches what other ranks own of the weights of a bucket.
  void gather_weights(Transport& transport, size_t bucket);

 private:
  // A stretch of a tensor's memory, and where and as what it travels in the part of its rank.
  struct Stretch {
    Tensor memory;
    DType packed;
    int64_t offset = 0;          // bytes
    bool rounded_later = false;  // a gradient in FP32 memory whose format is BF16
    bool cut = false;            // not all of the tensor
  };
  using Stretches = std::vector<Stretch>;
  struct Part {
    Stretches stretches;
    int64_t offset = 0, bytes = 0;  // in the staging memory
  };
  using Parts = std::vector<Part>;  // by rank

  [[nodiscard]] Stretches gradient_stretches(const Bucket& bucket, int64_t rank, DType packed) const;
  [[nodiscard]] Stretches weight_stretches(const Bucket& bucket, int64_t rank) const;
  [[nodiscard]] bool is_cut(int64_t rank, int64_t parameter) const;
  [[nodiscard]] int64_t norm_sums_of(const Bucket& bucket) const;
  [[nodiscard]] PartsSummary summary_of(const Parts& parts) const;
  [[nodiscard]] static Parts laid_out(std::vector<Stretches> by_rank);
  template <class StretchesOf>
  [[nodiscard]] std::vector<Parts> parts_of_buckets(const StretchesOf& stretches_of) const;
  [[nodiscard]] std::vector<Tensor> staged(const Parts& parts, DType dtype) const;
  void pack(const Part& part);
  void unpack(const Part& part);
  void convert(const Tensor& from, const Tensor& to);
  [[nodiscard]] Tensor packed(const Part& part, const Stretch& stretch) const;
  void store_sum(const Tensor& sum, const Stretch& stretch);
  void gather(Transport& transport, const Parts& parts);
  void allocate(Allocator& allocator);

  const WeightStore& weights_;
  Communicator& ranks_;
  Sharding sharding_;
  DType wire_;  // of gradients
  std::vector<Bucket> buckets_;
  Partition partition_;
  std::vector<Parts> gradients_, sums_, stored_;  // by bucket; sums_: gradients as they are kept
  Tensor staging_;                                // uint8, the largest bucket
  Tensor sum_, rounded_;                          // fp32 and bf16, the largest own part; none: not needed
  std::unique_ptr<CodecOps> ops_;                 // of the second stream
};

}  // namespace mpt
