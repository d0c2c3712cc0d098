// The CPU with the FP8 products of a GPU: operands in rows of k, aligned as cuBLASLt wants them, and no
// others.
#pragma once

#include <memory>
#include <utility>

#include "device/cpu/cpu_device.h"

namespace mpt::test {

class RowsOfKGemm final : public Gemm {
 public:
  explicit RowsOfKGemm(Gemm& inner) : inner_(inner) {}

  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override {
    for (const GemmCall& call : calls) check_layout(call);
    inner_.reserve(allocator, calls);
  }
  void run(const GemmCall& call) override {
    check_layout(call);
    inner_.run(call);
  }
  [[nodiscard]] Fp8Layout fp8_layout() const override { return Fp8Layout::kRowsOfK; }

 private:
  static void check_layout(const GemmCall& call) {
    if (!is_fp8(call.a.dtype)) return;
    check(call.transpose_a == Transpose::kNo && call.transpose_b == Transpose::kYes,
          "FP8 operands that are not in rows of k");
    for (const Tensor* t : {&call.a, &call.b, &call.d}) {
      const bool aligned = reinterpret_cast<uintptr_t>(t->data) % 16 == 0;
      check(aligned && t->rows % 16 == 0 && t->cols % 16 == 0 && t->stride % 16 == 0,
            "an FP8 product of [{},{}] with rows {} apart", t->rows, t->cols, t->stride);
    }
  }

  Gemm& inner_;
};

class RowsOfKDevice final : public Device {
 public:
  explicit RowsOfKDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)), gemm_(inner_->gemm()) {}

  [[nodiscard]] Backend backend() const override { return inner_->backend(); }
  [[nodiscard]] std::string name() const override { return inner_->name() + ", FP8 in rows of k"; }
  [[nodiscard]] std::string libraries() const override { return inner_->libraries(); }
  [[nodiscard]] int64_t memory_bytes() const override { return inner_->memory_bytes(); }
  std::unique_ptr<Allocator> make_allocator() override { return inner_->make_allocator(); }
  void download(const Tensor& source, std::byte* target) override { inner_->download(source, target); }
  void upload(const std::byte* source, const Tensor& target) override { inner_->upload(source, target); }
  void synchronize() override { inner_->synchronize(); }
  Gemm& gemm() override { return gemm_; }
  Attention& attention() override { return inner_->attention(); }

 private:
  std::unique_ptr<Device> inner_;
  RowsOfKGemm gemm_;
};

// The CPU, whose FP8 products take that layout.
inline std::unique_ptr<Device> make_cpu_device_of(Fp8Layout layout, int threads) {
  std::unique_ptr<Device> cpu = make_cpu_device(threads);
  if (layout == Fp8Layout::kAny) return cpu;
  return std::make_unique<RowsOfKDevice>(std::move(cpu));
}

}  // namespace mpt::test
