#include "optim/gradient_norm.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "device/device.h"
#include "optim/update/optimizer_ops.h"
#include "ranks/communicator.h"

namespace mpt {
namespace {

int64_t tiles_of(BlockRange range) { return (range.count + kBlocksPerTile - 1) / kBlocksPerTile; }

// Tiles of one tensor that one rank owns.
struct RankTiles {
  BlockRange range;
  size_t rank;
  int64_t place;  // index of its first tile
};

// [ranks][tensors]
std::vector<std::vector<BlockRange>> ranges_of(const Partition& partition) {
  std::vector<std::vector<BlockRange>> ranges(static_cast<size_t>(partition.ranks()));
  for (size_t rank = 0; rank < ranges.size(); ++rank)
    for (int64_t i = 0; i < partition.tensors(); ++i)
      ranges[rank].push_back(partition.range(int64_t(rank), i));
  return ranges;
}

}  // namespace

ReductionTiles::ReductionTiles(const Partition& partition, int64_t rank)
    : ReductionTiles(ranges_of(partition), rank) {}

ReductionTiles::ReductionTiles(const std::vector<std::vector<BlockRange>>& ranges, int64_t rank) {
  check(rank >= 0 && rank < int64_t(ranges.size()), "rank {} of {} is out of range", rank,
        ranges.size());
  const size_t tensors = ranges.front().size();
  own_.resize(tensors);
  std::vector<std::vector<RankTiles>> of_ranks(tensors);
  int64_t place = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    first_place_.push_back(place);
    for (size_t t = 0; t < tensors; ++t) {
      if (ranges[r][t].empty()) continue;
      of_ranks[t].push_back({ranges[r][t], r, place});
      place += tiles_of(ranges[r][t]);
    }
  }
  first_place_.push_back(place);
  int64_t tile = 0;
  for (size_t t = 0; t < tensors; ++t) {
    std::ranges::sort(of_ranks[t], {}, [](const RankTiles& s) { return s.range.first; });
    int64_t block = 0;
    for (const RankTiles& s : of_ranks[t]) {
      check(s.range.first == block && block % kBlocksPerTile == 0,
            "blocks must be adjacent and begin at tiles: {} follows {}", s.range.first, block);
      block = s.range.end();
      if (spans_.empty() || spans_.back().shift != s.place - tile)
        spans_.push_back({tile, s.place - tile});
      const int64_t first = s.range.first / kBlocksPerTile, count = tiles_of(s.range);
      if (int64_t(s.rank) == rank) own_[t] = {first, count, s.place - first};
      tile += count;
    }
  }
}

int64_t ReductionTiles::own_tiles() const {
  int64_t sum = 0;
  for (const OwnTiles& own : own_) sum += own.count;
  return sum;
}

std::vector<Tensor> ReductionTiles::shards(const Tensor& array) const {
  std::vector<Tensor> shards;
  for (size_t r = 0; r + 1 < first_place_.size(); ++r)
    shards.push_back(array.columns(first_place_[r], first_place_[r + 1] - first_place_[r]));
  for (Tensor& shard : shards) shard.stride = shard.cols;
  return shards;
}

// --- the norm ------------------------------------------------------------------------------------

GradientNorm::GradientNorm(std::vector<Tensor> gradients, const Options& options, OptimizerOps& ops)
    : clip_grad_norm_(options.clip_grad_norm),
      tiles_(options.partition, options.ranks.rank()),
      ranks_(options.ranks),
      device_(options.device),
      gradients_(std::move(gradients)) {
  Allocator& allocator = options.allocator;
  const auto row = [&](int64_t count) {
    return allocator.tensor(kScratchMemory, DType::kF64, 1, count);
  };
  const auto bytes = [&](int64_t count) {
    return allocator.pinned(kScratchMemory, DType::kU8, 1, count);
  };
  partial_ = row(tiles_.tiles());
  partial_shards_ = tiles_.shards(partial_);
  sums_ = row(sums_of_tiles(tiles_.tiles()));
  limits_ = bytes(sizeof(StepLimits));
  control_ = bytes(sizeof(StepControl));
  table_ = bytes(ops.norm_table_bytes(call({})));
  if (control_.host == nullptr) return;  // a plan
  set_limits({});
  ops.write_norm_table(call({}), table_.host);
  device_.send(table_);
}

NormCall GradientNorm::call(const Tensor& losses) const {
  return {.gradients = gradients_,
          .tiles = tiles_,
          .table = table_.tensor.data,
          .partial = partial_,
          .sums = sums_,
          .losses = losses,
          .clip_grad_norm = clip_grad_norm_,
          .limits = limits_.tensor.as<StepLimits>(),
          .control = device_control()};
}

void GradientNorm::measure(OptimizerOps& ops, const Tensor& losses) {
  const ProfileScope scope(device_, "gradient norm");
  const NormCall norm = call(losses);
  device_.send(limits_);
  ops.sum_gradients(norm);
  ranks_.all_gather(partial_shards_);
  ops.compute_clip(norm);
  device_.receive(control_);
}

void GradientNorm::proceed_with(float grad_scale) {
  *control_.image<StepControl>() = {
      .grad_norm = control().grad_norm, .grad_scale = grad_scale, .proceed = 1};
  device_.send(control_);
}

double GradientNorm::sum_of_squares(OptimizerOps& ops, const EncodedTensor& tensor) {
  const int64_t count = square_sums(tensor.rows, tensor.cols);
  host_partial_.resize(size_t(count));
  ops.sum_of_squares(tensor, partial_);
  device_.download(partial_.columns(0, count), reinterpret_cast<std::byte*>(host_partial_.data()));
  return std::accumulate(host_partial_.begin(), host_partial_.end(), 0.0);
}

}  // namespace mpt
