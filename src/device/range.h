// A named stretch of work: in a profiler's time line (NVTX on an NVIDIA GPU), in the table of
// `mpretrain --profile` (profiling_device.h), nowhere else.
//
//   const Range range(device, "gradient norm");
//   const Range range(device, "product y", flops_of(call));
#pragma once

#include "device/device.h"

namespace mpt {

// A string literal, and nothing else: who listens keeps the pointer.
struct RangeName {
  consteval RangeName(const char* literal) : text(literal) {}  // NOLINT: a literal stands for itself
  const char* text;
};

class Range {
 public:
  // `flops`: of the matrix products inside; 0 where they are not counted.
  Range(Device& device, RangeName name, double flops = 0) : device_(device) {
    device_.push_range(name.text, flops);
  }
  ~Range() { device_.pop_range(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Device& device_;
};

}  // namespace mpt
