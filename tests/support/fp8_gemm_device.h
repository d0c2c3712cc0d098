// A CPU device whose FP8 GEMMs accept only a GPU's layout: operands in rows of k, aligned as
// cuBLASLt requires.
//
// Sums are computed by the CPU backend, whose order depends on the layout of operands, or in the
// order of k.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "core/float_format.h"
#include "device/backends.h"
#include "device/profiling.h"

namespace mpt::test {

enum class Fp8Sums : uint8_t { kOfBackend, kInOrder };

struct Fp8GemmOptions {
  Fp8Layout layout = Fp8Layout::kAny;
  Fp8Sums sums = Fp8Sums::kOfBackend;
  std::vector<GemmCall>* calls = nullptr;  // receives all executed calls, if not null
};

class Fp8Gemm final : public Gemm {
 public:
  Fp8Gemm(Gemm& inner, const Fp8GemmOptions& fp8) : inner_(inner), fp8_(fp8) {}

  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override {
    for (const GemmCall& call : calls) check_layout(call);
    inner_.reserve(allocator, calls);
  }
  void run(const GemmCall& call) override {
    check_layout(call);
    if (fp8_.calls != nullptr) fp8_.calls->push_back(call);
    if (is_fp8(call.a.dtype) && fp8_.sums == Fp8Sums::kInOrder)
      sum_in_order(call);
    else
      inner_.run(call);
  }
  [[nodiscard]] Fp8Layout fp8_layout() const override { return fp8_.layout; }

 private:
  void check_layout(const GemmCall& call) const {
    if (!is_fp8(call.a.dtype) || fp8_.layout == Fp8Layout::kAny) return;
    check(call.transpose_a == Transpose::kNo && call.transpose_b == Transpose::kYes,
          "FP8 operands that are not in rows of k");
    for (const Tensor* t : {&call.a, &call.b, &call.d}) {
      const bool aligned = reinterpret_cast<uintptr_t>(t->data) % 16 == 0;
      check(aligned && t->rows % 16 == 0 && t->cols % 16 == 0 && t->stride % 16 == 0,
            "FP8 GEMM of [{},{}] with row stride {}", t->rows, t->cols, t->stride);
    }
  }

  // Decoded values in rows of k.
  static std::vector<double> rows_of_k(const Tensor& t, Transpose along_rows) {
    const bool in_rows = along_rows == Transpose::kNo;
    const int64_t rows = in_rows ? t.rows : t.cols, k = in_rows ? t.cols : t.rows;
    std::vector<double> values;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k; ++i) {
        const uint8_t code = t.as<uint8_t>()[in_rows ? r * t.stride + i : i * t.stride + r];
        values.push_back(
            double(t.dtype == DType::kE4M3 ? decode<kE4M3>(code) : decode<kE5M2>(code)));
      }
    return values;
  }
  static void sum_in_order(const GemmCall& call) {
    check_shapes(call);
    const bool b_in_rows = call.transpose_b == Transpose::kYes;
    const std::vector<double> a = rows_of_k(call.a, call.transpose_a),
                              b = rows_of_k(call.b, b_in_rows ? Transpose::kNo : Transpose::kYes);
    const float scale = *call.scale_inv_a * *call.scale_inv_b;
    const int64_t k = call.k();
    for (int64_t r = 0; r < call.m(); ++r)
      for (int64_t c = 0; c < call.n(); ++c) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += a[size_t(r * k + i)] * b[size_t(c * k + i)];
        const int64_t at = r * call.d.stride + c;
        if (call.d.dtype == DType::kF32)
          put(call, float(sum) * scale, call.d.as<float>()[at]);
        else
          put(call, float(sum) * scale, call.d.as<bf16>()[at]);
      }
  }
  template <class T>
  static void put(const GemmCall& call, float y, T& d) {
    d = from_float<T>(call.accumulate == Accumulate::kYes ? to_float(d) + y : y);
  }

  Gemm& inner_;
  Fp8GemmOptions fp8_;
};

class Fp8GemmDevice final : public ForwardingDevice {
 public:
  Fp8GemmDevice(std::unique_ptr<Device> inner, const Fp8GemmOptions& fp8)
      : ForwardingDevice(*inner), owned_(std::move(inner)), gemm_(inner_.gemm(), fp8) {}

  [[nodiscard]] std::string name() const override {
    return inner_.name() + ", FP8 GEMMs of a test";
  }
  Gemm& gemm() override { return gemm_; }

 private:
  std::unique_ptr<Device> owned_;
  Fp8Gemm gemm_;
};

// A CPU device with such FP8 GEMMs.
inline std::unique_ptr<Device> make_cpu_device_with(const Fp8GemmOptions& fp8, int threads) {
  return std::make_unique<Fp8GemmDevice>(make_cpu_device(threads), fp8);
}

}  // namespace mpt::test
