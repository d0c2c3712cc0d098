// A uniform sample of lines within a byte budget, drawn in one pass over any amount of text.
//
// Line i of the stream has priority Philox(seed, i); the lines with the smallest priorities that
// fit the budget are kept. The sample is a pure function of seed, budget and text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

class LineSample {
 public:
  LineSample(uint64_t seed, int64_t budget_bytes) : seed_(seed), budget_(budget_bytes) {}

  void add(std::string_view line);
  // Returns the sample in text order. No lines may be added afterwards.
  std::vector<std::string> take();
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  struct Line {
    uint64_t priority;
    int64_t index;
    std::string text;
    bool operator<(const Line& other) const { return priority < other.priority; }
  };

  uint64_t seed_;
  int64_t budget_;
  int64_t bytes_ = 0;
  int64_t next_index_ = 0;
  std::vector<Line> heap_;  // largest priority first
};

}  // namespace mpt
