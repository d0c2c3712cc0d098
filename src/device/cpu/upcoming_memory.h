// Memory that will be read soon, asked for a line at a time while something else is computed: all at once,
// the lines under way would keep what is needed now from the first cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace mpt {

class UpcomingMemory {
 public:
  static constexpr int kMostBlocks = 2;

  // A matrix that will be read, rows one after the other. kMostBlocks of them, in the order of these calls.
  void follow(const Tensor& block);
  [[nodiscard]] int64_t lines() const;  // of all blocks
  // The next `count` lines, or what there is, into `lines`; returns where they end.
  const std::byte** take(int64_t count, const std::byte** lines);

 private:
  struct Rows {
    const std::byte* next = nullptr;  // row
    int64_t count = 0, stride = 0;    // of those not begun; bytes
    int64_t lines = 0;                // of a row
  };

  std::array<Rows, kMostBlocks> blocks_;
  int count_ = 0, block_ = 0;
  const std::byte* line_ = nullptr;
  int64_t lines_of_row_ = 0;  // that are left
};

}  // namespace mpt
