// Exchange of gradients and weights between ranks, bucket by bucket: where each rank's part is in
// memory and how it is packed for transport.
//
// Parameters are exchanged in buckets of consecutive parameter groups (model/parameters.h). In each
// bucket a rank owns the update blocks that a Partition assigns to it. Gradients are
// reduce-scattered to their owners in the exchange format; weights are all-gathered from their
// owners as stored, codes and scales.
#pragma once

#include <cstdint>
#include <vector>

#include "config/run_config.h"
#include "model/llama_config.h"
#include "model/weight_store.h"
#include "precision/codec_ops.h"
#include "ranks/communicator.h"
#include "ranks/partition.h"

namespace mpt {

// Consecutive parameter groups that are exchanged together.
struct Bucket {
  int64_t first_group = 0, groups = 0;
  int64_t first_parameter = 0, parameters = 0;

  [[nodiscard]] int64_t last_group() const { return first_group + groups - 1; }
};
// Returns, in group order, the smallest buckets of at least `least_bytes` of gradients each, formed
// from the last group backward, whose gradients complete first; the bucket with group 0 may be
// smaller. `element_bytes`: size of one exchanged gradient.
struct BucketSize {
  int64_t least_bytes, element_bytes;
};
std::vector<Bucket> make_buckets(const LlamaConfig& config, const BucketSize& size);

// Update blocks of every parameter by rank: every bucket is split evenly, except that matrices that
// are projected or orthogonalized stay whole.
Partition partition_of(const RunConfig& config, int64_t ranks);

// Bytes that one rank sends in a step, counting every part once per rank that receives it.
struct ExchangeVolume {
  int64_t gradients = 0;  // reduce-scatter, and all-gather of the sums if not sharded
  int64_t weights = 0;    // all-gather
  int64_t norm = 0;       // sums of squares
  int64_t losses = 0;
  int64_t scales = 0;  // amaxes

  [[nodiscard]] int64_t small() const { return norm + losses + scales; }
  [[nodiscard]] int64_t total() const { return gradients + weights + small(); }
};

// Traffic of a bucket in one direction, over all ranks' parts.
struct PartsSummary {
  int64_t bytes = 0, largest_part_bytes = 0;  // packed
  int64_t memory_bytes = 0;                   // in the tensors
  int64_t spans = 0, own_spans = 0;           // each is packed or unpacked by one copy
  int64_t cut_spans = 0;                      // spans that cover only part of their tensor
};
struct BucketSummary {
  Bucket bucket;
  int64_t norm_sums = 0;       // reduction tiles of the gradient norm
  PartsSummary reduced = {};   // gradients
  PartsSummary gathered = {};  // weights as stored; sums of gradients if not sharded
};

class BucketExchange {
 public:
  // The constructor plans (or allocates) everything; a single rank has no buckets and no memory.
  // All members must outlive this object.
  struct Place {
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  BucketExchange(const RunConfig& config, const WeightStore& weights, const Place& place);

  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }
  // Only `gradients` and `weights` of the volume.
  [[nodiscard]] ExchangeVolume volume() const;
  [[nodiscard]] std::vector<BucketSummary> summary() const;

  // Call in Communicator::run(). Sums the gradients of a bucket over ranks, rounds the sums to the
  // gradient format and stores them in this rank's update blocks.
  void reduce_gradients(Transport& transport, size_t bucket);
  // Call in Communicator::run(), without sharding: all-gathers those sums to every rank.
  void gather_gradients(Transport& transport, size_t bucket);
  // Call in Communicator::run(): fetches the weights of a bucket that other ranks own.
  void gather_weights(Transport& transport, size_t bucket);

 private:
  // A span of a tensor's memory, and its offset and type when packed in its rank's part.
  struct PackedSpan {
    Tensor memory;
    DType packed;
    int64_t offset = 0;          // bytes
    bool rounded_later = false;  // a gradient in FP32 memory whose format is BF16
    bool cut = false;            // covers only part of the tensor
  };
  using PackedSpans = std::vector<PackedSpan>;
  struct Part {
    PackedSpans spans;
    int64_t offset = 0, bytes = 0;  // in staging memory
  };
  using Parts = std::vector<Part>;  // by rank

  [[nodiscard]] PackedSpans gradient_spans(const Bucket& bucket, int64_t rank, DType packed) const;
  [[nodiscard]] PackedSpans weight_spans(const Bucket& bucket, int64_t rank) const;
  [[nodiscard]] bool is_cut(int64_t rank, int64_t parameter) const;
  [[nodiscard]] int64_t norm_sums_of(const Bucket& bucket) const;
  [[nodiscard]] PartsSummary summary_of(const Parts& parts) const;
  [[nodiscard]] static Parts laid_out(std::vector<PackedSpans> by_rank);
  template <class SpansOf>
  [[nodiscard]] std::vector<Parts> parts_of_buckets(const SpansOf& of_bucket) const;
  [[nodiscard]] std::vector<Tensor> staged(const Parts& parts, DType dtype) const;
  void pack(const Part& part);
  void unpack(const Part& part);
  void convert(const Tensor& from, const Tensor& to);
  [[nodiscard]] Tensor packed(const Part& part, const PackedSpan& span) const;
  void store_sum(const Tensor& sum, const PackedSpan& span);
  void gather(Transport& transport, const Parts& parts);
  void allocate(Allocator& allocator);

  const WeightStore& weights_;
  Communicator& ranks_;
  Sharding sharding_;
  DType wire_;  // of exchanged gradients
  std::vector<Bucket> buckets_;
  Partition partition_;
  std::vector<Parts> gradients_, sums_, stored_;  // by bucket; sums_: gradients as stored
  Tensor staging_;                                // uint8, the largest bucket
  Tensor sum_, rounded_;           // fp32, bf16: largest own part; empty if not needed
  std::unique_ptr<CodecOps> ops_;  // on the communication stream
};

}  // namespace mpt
