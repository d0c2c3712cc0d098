#include "device/cpu/gemm_kernel.h"

#include <array>
#include <utility>

#include "core/prefetch.h"

namespace mpt {
namespace {

template <int kRows, int kVectors, Transpose kLayout>
void kernel(const KernelCall& call) {
  constexpr bool kTermsTogether = kLayout == Transpose::kYes;
  constexpr int64_t kTerm = kTermsTogether ? kTermStride : 1,
                    kRow = kTermsTogether ? 1 : kRowStride;
  constexpr int kUnrolled = 4;
  TileVector sums[kRows][kVectors] = {};
  const float *a = call.a, *b = call.b;
  const auto add_term = [&](int64_t term) MPT_ALWAYS_INLINE {
    TileVector of_b[kVectors];
    for (int64_t v = 0; v < kVectors; ++v)
      of_b[v] = tile_vector_at(b + term * kPanelColumns + v * kTileLanes);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t v = 0; v < kVectors; ++v)
        add_product(sums[i][v], a[term * kTerm + i * kRow], of_b[v]);
  };
  const float* row = call.d;  // first row whose lines have not been prefetched
  int rows_left = kRows;
  int64_t term = 0;
  for (; term + kTermsPerLine <= call.depth; term += kTermsPerLine) {
    prefetch<Use::kRead, Cache::kSecond>(call.prefetched[term / kTermsPerLine], kCacheLine);
    if (rows_left-- > 0) {
      prefetch<Use::kWrite>(row, kVectors * int64_t(sizeof(TileVector)));
      row += call.ldd;
    }
    for (int64_t some = 0; some < kTermsPerLine; some += kUnrolled) {
#pragma GCC unroll 4
      for (int64_t t = 0; t < kUnrolled; ++t) add_term(t);
      a += kUnrolled * kTerm;
      b += kUnrolled * kPanelColumns;
    }
  }
  for (; term < call.depth; ++term) {
    add_term(0);
    a += kTerm;
    b += kPanelColumns;
  }
  const auto d = [&](int64_t i, int64_t v) -> TileVector& {
    return tile_vector_at(call.d + i * call.ldd + v * kTileLanes);
  };
  // Two loops, because the compiler would not fuse a product shared by both branches into a
  // multiply-add.
  if (call.accumulate == Accumulate::kYes) {
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t v = 0; v < kVectors; ++v) add_product(d(i, v), call.alpha, sums[i][v]);
  } else {
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t v = 0; v < kVectors; ++v) d(i, v) = call.alpha * sums[i][v];
  }
}

using Kernel = void (*)(const KernelCall&);
using KernelsOfRows = std::array<Kernel, kKernelRows>;

template <int kVectors, Transpose kLayout>
constexpr KernelsOfRows kKernels = []<int... kRow>(std::integer_sequence<int, kRow...>) {
  return KernelsOfRows{kernel<kRow + 1, kVectors, kLayout>...};
}
(std::make_integer_sequence<int, kKernelRows>{});

}  // namespace

void run_kernel(int rows, int vectors, Transpose layout_of_a, const KernelCall& call) {
  static_assert(kKernelVectors == 2);
  const KernelsOfRows& kernels =
      layout_of_a == Transpose::kYes
          ? (vectors == 1 ? kKernels<1, Transpose::kYes> : kKernels<2, Transpose::kYes>)
          : (vectors == 1 ? kKernels<1, Transpose::kNo> : kKernels<2, Transpose::kNo>);
  kernels[size_t(rows) - 1](call);
}

}  // namespace mpt
