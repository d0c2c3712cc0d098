#include "train/step/bucket_exchange.h"

#include <algorithm>
#include <numeric>

#include "model/parameters.h"
#include "optim/optimizer_states.h"

namespace mpt {
namespace {

constexpr int64_t kPartAlignment = 64;  // bytes

int64_t elements_of_group(const LlamaConfig& config, const std::vector<ParamSpec>& specs,
                          int64_t group) {
  const ParameterRange range = parameters_of_group(config, group);
  int64_t elements = 0;
  for (int64_t i = range.first; i < range.first + range.count; ++i)
    elements += specs[size_t(i)].rows * specs[size_t(i)].cols;
  return elements;
}

// Pads parts to equal lengths, which enables a transport's fastest collective, if that adds at most
// 1/8.
void even_out(std::vector<int64_t>& bytes) {
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0}),
                most = std::ranges::max(bytes);
  if (most * std::ssize(bytes) <= total + total / 8) std::ranges::fill(bytes, most);
}

// Bytes a rank sends when every other rank gets its own part, or all others get the same part.
template <class Parts>
int64_t sent_parts(const Parts& parts, int64_t rank) {
  int64_t bytes = 0;
  for (int64_t r = 0; r < std::ssize(parts); ++r) bytes += r == rank ? 0 : parts[size_t(r)].bytes;
  return bytes;
}
template <class Parts>
int64_t sent_own(const Parts& parts, int64_t rank) {
  return parts[size_t(rank)].bytes * (std::ssize(parts) - 1);
}

}  // namespace

std::vector<Bucket> make_buckets(const LlamaConfig& config, const BucketSize& size) {
  const std::vector<ParamSpec> specs = llama_parameters(config);
  std::vector<Bucket> buckets;
  int64_t bytes = size.least_bytes;  // of the last bucket started
  for (int64_t group = parameter_groups(config) - 1; group >= 0; --group) {
    const ParameterRange range = parameters_of_group(config, group);
    if (bytes >= size.least_bytes) {
      buckets.push_back({});
      bytes = 0;
    }
    Bucket& bucket = buckets.back();
    bucket = {group, bucket.groups + 1, range.first, bucket.parameters + range.count};
    bytes += elements_of_group(config, specs, group) * size.element_bytes;
  }
  std::ranges::reverse(buckets);
  return buckets;
}

namespace {

std::vector<Bucket> buckets_of(const RunConfig& config) {
  return make_buckets(config.model,
                      {.least_bytes = config.distributed.bucket_mib << 20,
                       .element_bytes = size_of(dtype_of(config.distributed.gradient_reduce))});
}

}  // namespace

Partition partition_of(const RunConfig& config, int64_t ranks) {
  const std::vector<ParamSpec> specs = llama_parameters(config.model);
  const std::vector<Bucket> buckets = buckets_of(config);
  std::vector<PartitionedTensor> tensors;
  for (size_t b = 0; b < buckets.size(); ++b)
    for (int64_t i = 0; i < buckets[b].parameters; ++i) {
      const ParamSpec& spec = specs[size_t(buckets[b].first_parameter + i)];
      tensors.push_back({.rows = spec.rows,
                         .cols = spec.cols,
                         .bucket = int64_t(b),
                         .cut = cut_of(config.optimizer, spec.kind)});
    }
  return {std::move(tensors), ranks};
}

BucketExchange::BucketExchange(const RunConfig& config, const WeightStore& weights,
                               const Place& place)
    : weights_(weights),
      ranks_(place.ranks),
      sharding_(config.distributed.sharding),
      wire_(dtype_of(config.distributed.gradient_reduce)),
      buckets_(place.ranks.is_single() ? std::vector<Bucket>() : buckets_of(config)),
      partition_(place.ranks.is_single() ? Partition({}, 1)
                                         : partition_of(config, place.ranks.size())) {
  if (place.ranks.is_single()) return;
  const auto gradients_as = [this](DType packed) {
    return parts_of_buckets(
        [=, this](const Bucket& b, int64_t rank) { return gradient_spans(b, rank, packed); });
  };
  gradients_ = gradients_as(wire_);
  if (sharding_ == Sharding::kOptimizer)
    stored_ =
        parts_of_buckets([this](const Bucket& b, int64_t rank) { return weight_spans(b, rank); });
  else
    sums_ = gradients_as(dtype_of(config.precision.gradient));
  allocate(place.allocator);
  if (!place.allocator.plans())
    ops_ = make_ops<CodecOps>(ranks_.comm_stream().stream(), {place.allocator, 1});
}

// --- location of parts ---------------------------------------------------------------------------

BucketExchange::PackedSpans BucketExchange::gradient_spans(const Bucket& bucket, int64_t rank,
                                                           DType packed) const {
  PackedSpans spans;
  for (int64_t i = bucket.first_parameter; i < bucket.first_parameter + bucket.parameters; ++i) {
    const ParamSpec& spec = weights_.specs()[size_t(i)];
    const Tensor memory = span_of(logical_view(spec, weights_.gradient(i)), {spec.rows, spec.cols},
                                  partition_.range(rank, i));
    spans.push_back({.memory = memory,
                     .packed = packed,
                     .rounded_later = weights_.rounded_later(i),
                     .cut = is_cut(rank, i)});
  }
  return spans;
}

BucketExchange::PackedSpans BucketExchange::weight_spans(const Bucket& bucket, int64_t rank) const {
  PackedSpans spans;
  for (int64_t i = bucket.first_parameter; i < bucket.first_parameter + bucket.parameters; ++i) {
    const BlockRange range = partition_.range(rank, i);
    const EncodedTensor& master = weights_.master(i);
    for (const Tensor& memory : spans_of(master, range))
      spans.push_back({.memory = memory, .packed = memory.dtype, .cut = is_cut(rank, i)});
    if (range.first == 0 && !range.empty() && master.tensor_scale.rows > 0)
      spans.push_back({.memory = master.tensor_scale, .packed = master.tensor_scale.dtype});
  }
  return spans;
}

bool BucketExchange::is_cut(int64_t rank, int64_t parameter) const {
  const ParamSpec& spec = weights_.specs()[size_t(parameter)];
  return partition_.range(rank, parameter) != all_blocks(spec.rows, spec.cols);
}

BucketExchange::Parts BucketExchange::laid_out(std::vector<PackedSpans> by_rank) {
  std::vector<int64_t> bytes;
  for (PackedSpans& spans : by_rank) {
    std::erase_if(spans, [](const PackedSpan& s) { return s.memory.elements() == 0; });
    bytes.push_back(0);
    for (PackedSpan& s : spans) {
      s.offset = bytes.back();
      bytes.back() += align_up(s.memory.elements() * size_of(s.packed), kPartAlignment);
    }
  }
  even_out(bytes);
  Parts parts;
  int64_t offset = 0;
  for (size_t rank = 0; rank < bytes.size(); offset += bytes[rank++])
    parts.push_back({std::move(by_rank[rank]), offset, bytes[rank]});
  return parts;
}

template <class SpansOf>
std::vector<BucketExchange::Parts> BucketExchange::parts_of_buckets(
    const SpansOf& of_bucket) const {
  std::vector<Parts> all;
  for (const Bucket& bucket : buckets_) {
    std::vector<PackedSpans> by_rank;
    for (int64_t rank = 0; rank < ranks_.size(); ++rank) by_rank.push_back(of_bucket(bucket, rank));
    all.push_back(laid_out(std::move(by_rank)));
  }
  return all;
}

void BucketExchange::allocate(Allocator& allocator) {
  int64_t staging = 0, own = 0;
  bool rounded = false;
  for (const std::vector<Parts>* kind : {&gradients_, &sums_, &stored_})
    for (const Parts& parts : *kind)
      staging = std::max(staging, parts.back().offset + parts.back().bytes);
  for (const Parts& parts : gradients_) {
    const Part& mine = parts[size_t(ranks_.rank())];
    own = std::max(own, mine.bytes / size_of(wire_));
    for (const PackedSpan& span : mine.spans) rounded |= span.rounded_later;
  }
  staging_ = allocator.tensor(kScratchMemory, DType::kU8, 1, staging);
  if (wire_ != DType::kF32) sum_ = allocator.tensor(kScratchMemory, DType::kF32, 1, own);
  if (rounded) rounded_ = allocator.tensor(kScratchMemory, DType::kBF16, 1, own);
}

ExchangeVolume BucketExchange::volume() const {
  ExchangeVolume volume;
  for (const Parts& parts : gradients_) volume.gradients += sent_parts(parts, ranks_.rank());
  for (const Parts& parts : sums_) volume.gradients += sent_own(parts, ranks_.rank());
  for (const Parts& parts : stored_) volume.weights += sent_own(parts, ranks_.rank());
  return volume;
}

std::vector<BucketSummary> BucketExchange::summary() const {
  const std::vector<Parts>& gathered = sharding_ == Sharding::kOptimizer ? stored_ : sums_;
  std::vector<BucketSummary> all;
  for (size_t b = 0; b < buckets_.size(); ++b)
    all.push_back({.bucket = buckets_[b],
                   .norm_sums = norm_sums_of(buckets_[b]),
                   .reduced = summary_of(gradients_[b]),
                   .gathered = summary_of(gathered[b])});
  return all;
}

int64_t BucketExchange::norm_sums_of(const Bucket& bucket) const {
  int64_t tiles = 0;
  for (int64_t i = bucket.first_parameter; i < bucket.first_parameter + bucket.parameters; ++i) {
    const ParamSpec& spec = weights_.specs()[size_t(i)];
    tiles += (all_blocks(spec.rows, spec.cols).count + kBlocksPerTile - 1) / kBlocksPerTile;
  }
  return tiles;
}

PartsSummary BucketExchange::summary_of(const Parts& parts) const {
  PartsSummary summary{.own_spans = std::ssize(parts[size_t(ranks_.rank())].spans)};
  for (const Part& part : parts) {
    summary.bytes += part.bytes;
    summary.largest_part_bytes = std::max(summary.largest_part_bytes, part.bytes);
    summary.spans += std::ssize(part.spans);
    for (const PackedSpan& s : part.spans) {
      summary.memory_bytes += s.memory.elements() * size_of(s.memory.dtype);
      summary.cut_spans += s.cut ? 1 : 0;
    }
  }
  return summary;
}

// --- exchange ------------------------------------------------------------------------------------

std::vector<Tensor> BucketExchange::staged(const Parts& parts, DType dtype) const {
  std::vector<Tensor> views;
  for (const Part& part : parts) {
    const int64_t elements = part.bytes / size_of(dtype);
    views.push_back({staging_.data + part.offset, dtype, 1, elements, elements});
  }
  return views;
}

void BucketExchange::convert(const Tensor& from, const Tensor& to) {
  if (from.dtype == to.dtype) return ranks_.comm_stream().copy(from, to);
  ops_->decode(encoded_view(from), to);
}

// Returns a span's location in staging memory.
Tensor BucketExchange::packed(const Part& part, const PackedSpan& span) const {
  const int64_t elements = span.memory.elements();
  return {staging_.data + part.offset + span.offset, span.packed, 1, elements, elements};
}

void BucketExchange::pack(const Part& part) {
  for (const PackedSpan& s : part.spans) convert(s.memory, packed(part, s));
}

void BucketExchange::unpack(const Part& part) {
  for (const PackedSpan& s : part.spans) convert(packed(part, s), s.memory);
}

void BucketExchange::reduce_gradients(Transport& transport, size_t bucket) {
  const Parts& parts = gradients_[bucket];
  for (const Part& part : parts) pack(part);
  const std::vector<Tensor> views = staged(parts, wire_);
  const Tensor own = views[size_t(ranks_.rank())];
  const Tensor sum = wire_ == DType::kF32 ? own : sum_.columns(0, own.cols);
  transport.reduce_scatter_sum(views, sum);
  for (const PackedSpan& s : parts[size_t(ranks_.rank())].spans)
    store_sum(sum.columns(s.offset / size_of(wire_), s.memory.elements()), s);
}

// Rounds a sum once, to the gradient format; FP32 memory may hold values of that format.
void BucketExchange::store_sum(const Tensor& sum, const PackedSpan& span) {
  if (!span.rounded_later) return convert(sum, span.memory);
  const Tensor rounded = rounded_.columns(0, sum.cols);
  convert(sum, rounded);
  convert(rounded, span.memory);
}

void BucketExchange::gather(Transport& transport, const Parts& parts) {
  pack(parts[size_t(ranks_.rank())]);
  transport.all_gather(staged(parts, DType::kU8));
  for (int64_t rank = 0; rank < ranks_.size(); ++rank)
    if (rank != ranks_.rank()) unpack(parts[size_t(rank)]);
}

void BucketExchange::gather_gradients(Transport& transport, size_t bucket) {
  gather(transport, sums_[bucket]);
}
void BucketExchange::gather_weights(Transport& transport, size_t bucket) {
  gather(transport, stored_[bucket]);
}

}  // namespace mpt
