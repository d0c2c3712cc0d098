#include "optim/piece_map.h"

#include <algorithm>

#include "core/check.h"

namespace mpt {
namespace {

int64_t pieces_of(UnitRange range) { return (range.count + kUnitsPerPiece - 1) / kUnitsPerPiece; }

// Of one tensor, the pieces of one rank.
struct Stretch {
  UnitRange range;
  size_t rank;
  int64_t place;  // of its first piece
};

}  // namespace

PieceMap::PieceMap(const std::vector<std::vector<UnitRange>>& ranges, int64_t rank) {
  check(rank >= 0 && rank < int64_t(ranges.size()), "rank {} of {}", rank, ranges.size());
  const size_t tensors = ranges.front().size();
  own_.resize(tensors);
  std::vector<std::vector<Stretch>> stretches(tensors);
  int64_t place = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    first_place_.push_back(place);
    for (size_t t = 0; t < tensors; ++t) {
      if (ranges[r][t].empty()) continue;
      stretches[t].push_back({ranges[r][t], r, place});
      place += pieces_of(ranges[r][t]);
    }
  }
  first_place_.push_back(place);
  int64_t piece = 0;
  for (size_t t = 0; t < tensors; ++t) {
    std::ranges::sort(stretches[t], {}, [](const Stretch& s) { return s.range.first; });
    int64_t unit = 0;
    for (const Stretch& s : stretches[t]) {
      check(s.range.first == unit && unit % kUnitsPerPiece == 0, "units from {} follow those up to {}",
            s.range.first, unit);
      unit = s.range.end();
      if (runs_.empty() || runs_.back().shift != s.place - piece) runs_.push_back({piece, s.place - piece});
      const int64_t first = s.range.first / kUnitsPerPiece, count = pieces_of(s.range);
      if (int64_t(s.rank) == rank) own_[t] = {first, count, s.place - first};
      piece += count;
    }
  }
}

int64_t PieceMap::own_pieces() const {
  int64_t sum = 0;
  for (const OwnPieces& own : own_) sum += own.count;
  return sum;
}

std::vector<Tensor> PieceMap::parts(const Tensor& array) const {
  std::vector<Tensor> parts;
  for (size_t r = 0; r + 1 < first_place_.size(); ++r)
    parts.push_back(array.columns(first_place_[r], first_place_[r + 1] - first_place_[r]));
  for (Tensor& part : parts) part.stride = part.cols;
  return parts;
}

}  // namespace mpt
