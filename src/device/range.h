// A named stretch of work in a profiler's time line (NVTX on an NVIDIA GPU, nothing elsewhere).
//
//   const Range range(device, "optimizer");
#pragma once

#include "device/device.h"

namespace mpt {

class Range {
 public:
  // `name` must outlive the call only.
  Range(Device& device, const char* name) : device_(device) { device_.push_range(name); }
  ~Range() { device_.pop_range(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Device& device_;
};

}  // namespace mpt
