// A range in nearly equal parts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mpt {

struct IndexRange {
  int64_t begin = 0, end = 0;
  [[nodiscard]] int64_t size() const { return end - begin; }
};

class EvenParts {
 public:
  EvenParts(IndexRange all, int64_t count) : all_(all), count_(count) {}
  // As few as hold at most `most` each, and at least one.
  static EvenParts of_at_most(IndexRange all, int64_t most) {
    return {all, std::max<int64_t>(1, (all.size() + most - 1) / most)};
  }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] IndexRange operator[](int64_t part) const { return {edge(part), edge(part + 1)}; }

 private:
  [[nodiscard]] int64_t edge(int64_t part) const { return all_.begin + all_.size() * part / count_; }

  IndexRange all_;
  int64_t count_;
};

}  // namespace mpt
