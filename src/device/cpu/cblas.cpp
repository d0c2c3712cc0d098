// The only file that knows which CBLAS is behind the products.
#include "device/cpu/cblas.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "device/cpu/cpu_gemm.h"

#if defined(MPT_CBLAS_BLIS)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wshadow"
#include <blis.h>
#pragma GCC diagnostic pop
#elif defined(MPT_CBLAS_OPENBLAS)
#include <cblas.h>
#else
#error "no CBLAS was chosen: see cmake/FindCBLAS.cmake"
#endif

namespace mpt {

#if defined(MPT_CBLAS_BLIS)

void set_cblas_threads(int threads) { bli_thread_set_num_threads(threads); }

static std::string kernel_name() { return bli_arch_string(bli_arch_query_id()); }

std::string cblas_description() {
  return fmt::format("BLIS {} ({} kernels, {} threads)", bli_info_get_version_str(), kernel_name(),
                     bli_thread_get_num_threads());
}
bool cblas_is_optimised() { return kernel_name() != "generic"; }
bool cblas_ignores_threads() { return true; }

#else

void set_cblas_threads(int threads) { openblas_set_num_threads(threads); }

std::string cblas_description() {
  return fmt::format("{} ({} kernels, {} threads)", openblas_get_config(), openblas_get_corename(),
                     openblas_get_num_threads());
}
bool cblas_is_optimised() {
  const std::string core = openblas_get_corename();
  return core != "Prescott" && core != "Core2" && core != "GENERIC";
}
bool cblas_ignores_threads() {
  const std::string core = openblas_get_corename();
  return core == "SkylakeX" || core == "Sandybridge";
}

#endif

static void product(const Sgemm& call) {
  const auto flag = [](Transpose t) { return t == Transpose::kYes ? CblasTrans : CblasNoTrans; };
  using Int = decltype([] {
#if defined(MPT_CBLAS_BLIS)
    return f77_int{};
#else
    return blasint{};
#endif
  }());
  // A leading dimension of 0, of rows without elements, is refused, and the refusal only printed.
  const auto leading = [](int64_t stride) { return Int(std::max<int64_t>(stride, 1)); };
  cblas_sgemm(CblasRowMajor, flag(call.transpose_a), flag(call.transpose_b), Int(call.m), Int(call.n),
              Int(call.k), call.alpha, call.a, leading(call.lda), call.b, leading(call.ldb), call.beta,
              call.d, leading(call.ldd));
}

// The bits of a product must not depend on the number of threads. Where those of a library do, its calls are
// cut into such as do not (both measured over thousands of shapes).
#if defined(MPT_CBLAS_BLIS)

int64_t cblas_bytes(int64_t /*m*/, int64_t /*k*/) { return 0; }

// With BLIS 0.9 they do for A B^T where n is odd, by the kernels of its last column, and nowhere else. Alone
// that column is computed alike by any number of threads.
void sgemm(const Sgemm& call) {
  const bool alone = call.transpose_b == Transpose::kYes && call.n % 2 == 1 && call.n > 1;
  if (!alone) return product(call);
  Sgemm even = call, last = call;
  even.n = call.n - 1;
  last.n = 1;
  last.b += even.n * call.ldb;
  last.d += even.n;
  product(even);
  product(last);
}

#else

constexpr int64_t kShort = 384;  // terms of a sum

// Several threads hold all of A's rows in packed panels, of as many terms as a call has; beside it, and in
// one thread, blocks that fit the second cache (measured, of 12 shapes: what is said here to 0.7 MiB).
int64_t cblas_bytes(int64_t m, int64_t k) {
  return openblas_get_num_threads() > 1 ? 4 * m * std::min(k, kShort) : 0;
}

// OpenBLAS 0.3 adds up a long sum in parts, cut differently for one thread and for several. Sums as short as
// its shortest parts are not cut. That is enough with the kernels that cblas_ignores_threads() names; those
// of Haswell and Zen differ by columns as well.
void sgemm(const Sgemm& call) {
  constexpr int64_t kMultiple = 16;
  const int64_t parts = std::max<int64_t>(1, (call.k + kShort - 1) / kShort),
                size = (call.k + parts * kMultiple - 1) / (parts * kMultiple) * kMultiple;
  Sgemm part = call;
  int64_t first = 0;
  do {
    part.k = std::min(size, call.k - first);
    part.a = call.a + first * (call.transpose_a == Transpose::kYes ? call.lda : 1);
    part.b = call.b + first * (call.transpose_b == Transpose::kYes ? 1 : call.ldb);
    part.beta = first == 0 ? call.beta : 1.0f;
    product(part);
    first += size;
  } while (first < call.k);
}

#endif

}  // namespace mpt
