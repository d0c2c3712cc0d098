// A minimal Device: copies to and from host memory and counts the copies. No arithmetic, no
// allocation.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "device/device.h"

namespace mpt::test {

class HostMemoryDevice final : public Device {
 public:
  int64_t uploads = 0;
  int64_t downloads = 0;
  int64_t largest_copy = 0;  // bytes

  [[nodiscard]] Backend backend() const override { return Backend::kCpu; }
  [[nodiscard]] std::string name() const override { return "host memory"; }
  [[nodiscard]] std::string libraries() const override { return ""; }
  [[nodiscard]] int64_t memory_bytes() const override { return 0; }
  std::unique_ptr<Allocator> make_allocator() override {
    throw std::logic_error("host memory allocates nothing");
  }

  void download(const Tensor& source, std::byte* target) override {
    ++downloads;
    for_rows(source, [&](std::byte* row, int64_t packed, size_t bytes) {
      std::memcpy(target + packed, row, bytes);
    });
  }
  void upload(const std::byte* source, const Tensor& target) override {
    ++uploads;
    for_rows(target, [&](std::byte* row, int64_t packed, size_t bytes) {
      std::memcpy(row, source + packed, bytes);
    });
  }
  void synchronize() override {}
  Gemm& gemm() override { throw std::logic_error("host memory multiplies nothing"); }
  Attention& attention() override { throw std::logic_error("host memory attends to nothing"); }

 private:
  template <class Copy>
  void for_rows(const Tensor& tensor, Copy copy) {
    const int64_t size = size_of(tensor.dtype), bytes = tensor.cols * size;
    largest_copy = std::max(largest_copy, tensor.rows * bytes);
    for (int64_t row = 0; row < tensor.rows; ++row) {
      copy(tensor.data + row * tensor.stride * size, row * bytes, static_cast<size_t>(bytes));
    }
  }
};

}  // namespace mpt::test
