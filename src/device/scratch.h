// Scratch that a backend keeps between calls: as large as the largest request, within the memory of one
// allocator.
//
// A request through another allocator starts anew, because the memory of the one before may be gone. A plan
// counts what the same requests would take and leaves the scratch as it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/memory_plan.h"

namespace mpt {

class Scratch {
 public:
  void reserve(Allocator& allocator, int64_t count) {
    if (allocator.id() != allocator_) requested_ = 0;
    allocator_ = allocator.id();
    if (count <= requested_) return;
    requested_ = count;
    std::byte* data = allocator.bytes(Purpose::kScratch, count);
    if (data == nullptr) return;
    data_ = data;
    bytes_ = count;
  }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data_); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t allocator_ = 0;  // of the latest request
  int64_t requested_ = 0;   // from it, bytes
};

}  // namespace mpt
