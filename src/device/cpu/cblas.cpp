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

// With BLIS 0.9 the bits of A B^T depend on the number of threads where n is odd, by the kernels of its last
// column, and on nothing of the kind where n is even (measured over 3000 shapes). Alone that column is
// computed alike by any number of threads.
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

}  // namespace mpt
