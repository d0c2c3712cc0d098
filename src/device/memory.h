// Memory accounting: every buffer of a run is requested once, by purpose, before the first step.
//
// The same constructors run with a PlanningAllocator (records sizes, allocates nothing) or a
// device's own allocator, so `mpretrain plan` reports exactly what a run will take.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace mpt {

// Purpose of a buffer, as named by `plan` and errors; declared where such buffers are requested.
struct MemoryPurpose {
  std::string_view name;  // a literal; equal names are the same purpose

  bool operator==(const MemoryPurpose&) const = default;
};
inline constexpr MemoryPurpose kScratchMemory{
    "scratch"};  // kept by backends and operations between calls

constexpr int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

// Bytes by purpose, including padding and alignment. Sums saturate at the largest int64_t, so that
// an impossibly large model never appears to fit.
class MemoryUse {
 public:
  struct Entry {
    MemoryPurpose purpose;
    int64_t bytes;
  };

  void add(MemoryPurpose purpose, int64_t bytes) {
    const auto known = std::ranges::find(entries_, purpose, &Entry::purpose);
    if (known == entries_.end())
      entries_.push_back({purpose, bytes});
    else
      known->bytes = saturating_sum(known->bytes, bytes);
  }
  [[nodiscard]] int64_t of(MemoryPurpose purpose) const {
    const auto known = std::ranges::find(entries_, purpose, &Entry::purpose);
    return known == entries_.end() ? 0 : known->bytes;
  }
  [[nodiscard]] int64_t total() const {
    int64_t sum = 0;
    for (const Entry& entry : entries_) sum = saturating_sum(sum, entry.bytes);
    return sum;
  }
  // In the order of first request.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

constexpr int64_t kAlignment = 64;  // bytes; start of every buffer
constexpr int64_t align_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// A contiguous tensor and its image in host memory. If the device works in host memory, both are
// the same.
struct PinnedBuffer {
  Tensor tensor;
  std::byte* host = nullptr;  // null when planning

  template <class T>
  [[nodiscard]] T* image() const {
    return reinterpret_cast<T*>(host);
  }
  // Rows [first, first + count), including the image.
  [[nodiscard]] PinnedBuffer row_range(int64_t first, int64_t count) const {
    return {tensor.row_range(first, count),
            host ? host + first * tensor.stride * size_of(tensor.dtype) : nullptr};
  }
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // Unique across all allocators ever made, from 1.
  [[nodiscard]] uint64_t id() const { return id_; }
  // Zero-filled bytes, aligned to kAlignment, that live as long as the allocator; null when
  // planning.
  virtual std::byte* bytes(MemoryPurpose purpose, int64_t count) = 0;
  [[nodiscard]] virtual const MemoryUse& use() const = 0;
  // Whether this allocator only counts.
  [[nodiscard]] virtual bool plans() const { return false; }

  // A contiguous [rows, cols] tensor.
  Tensor tensor(MemoryPurpose purpose, DType dtype, int64_t rows, int64_t cols) {
    return {bytes(purpose, rows * cols * size_of(dtype)), dtype, rows, cols, cols};
  }
  // The same with an image, also zero-filled.
  PinnedBuffer pinned(MemoryPurpose purpose, DType dtype, int64_t rows, int64_t cols) {
    const Tensor t = tensor(purpose, dtype, rows, cols);
    return {t, image_of(t)};
  }

 protected:
  virtual std::byte* image_of(const Tensor& tensor) { return tensor.data; }

 private:
  static uint64_t next_id() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }
  uint64_t id_ = next_id();
};

// Counts and allocates nothing: the returned views have null data.
class PlanningAllocator final : public Allocator {
 public:
  // `alignment`: of the planned device, in bytes (Device::alignment()).
  explicit PlanningAllocator(int64_t alignment = kAlignment) : alignment_(alignment) {}
  std::byte* bytes(MemoryPurpose purpose, int64_t count) override {
    use_.add(purpose, align_up(count, alignment_));
    return nullptr;
  }
  [[nodiscard]] const MemoryUse& use() const override { return use_; }
  [[nodiscard]] bool plans() const override { return true; }

 private:
  int64_t alignment_;
  MemoryUse use_;
};

// Scratch kept by a backend between calls: as large as the largest request, in the memory of a
// single allocator.
//
// A request through another allocator starts over, because the previous one's memory may be gone. A
// plan counts what the same requests would take and leaves the scratch unchanged.
class Scratch {
 public:
  void reserve(Allocator& allocator, int64_t count) {
    if (allocator.id() != allocator_) requested_ = 0;
    allocator_ = allocator.id();
    if (count <= requested_) return;
    requested_ = count;
    std::byte* data = allocator.bytes(kScratchMemory, count);
    if (data == nullptr) return;
    data_ = data;
    bytes_ = count;
  }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data_); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t allocator_ = 0;  // id() of the latest request's allocator
  int64_t requested_ = 0;   // bytes requested from it
};

}  // namespace mpt
