#include "text/line_sample.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"
#include "data/shuffle.h"

namespace mpt {
namespace {

// Tensor 1 of the data stream; 0 is the order of sequences, 2 the choice of validation documents.
uint64_t priority_of(uint64_t seed, int64_t index) {
  const RandomCounter draw{.seed = seed,
                           .tensor = 1,
                           .row = static_cast<uint32_t>(index),
                           .step = static_cast<uint32_t>(index >> 32),
                           .stream = kDataOrderStream};
  const PhiloxBlock block = draw.block(0);
  return uint64_t{block.word[0]} << 32 | block.word[1];
}

// Overhead: a line takes more memory than its text, so fewer very short lines are kept than fit.
constexpr int64_t kAnyLines = 1 << 20, kBytesOfMoreLines = 16;

}  // namespace

void LineSample::add(std::string_view line) {
  const int64_t index = next_index_++;
  const uint64_t priority = priority_of(seed_, index);
  const int64_t most_lines = std::max(kAnyLines, budget_ / kBytesOfMoreLines);
  const bool full =
      bytes_ + static_cast<int64_t>(line.size()) > budget_ || std::ssize(heap_) >= most_lines;
  if (full && !heap_.empty() && priority > heap_.front().priority) return;
  heap_.push_back({priority, index, std::string(line)});
  std::push_heap(heap_.begin(), heap_.end());
  bytes_ += static_cast<int64_t>(line.size());
  while ((bytes_ > budget_ || std::ssize(heap_) > most_lines) && heap_.size() > 1) {
    std::pop_heap(heap_.begin(), heap_.end());
    bytes_ -= static_cast<int64_t>(heap_.back().text.size());
    heap_.pop_back();
  }
}

std::vector<std::string> LineSample::take() {
  std::sort(heap_.begin(), heap_.end(),
            [](const Line& a, const Line& b) { return a.index < b.index; });
  std::vector<std::string> lines;
  lines.reserve(heap_.size());
  for (Line& line : heap_) lines.push_back(std::move(line.text));
  heap_.clear();
  return lines;
}

}  // namespace mpt
