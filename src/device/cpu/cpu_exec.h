// Iteration on the CPU: OpenMP threads over rows and units, SIMD within.
#pragma once

#include "device/exec.h"

namespace mpt {

struct CpuExec {
  using Group = SerialGroup;

  template <class F>
  void elements(int64_t n, const F& f) const {
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; ++i) f(i);
  }
  // A single row, as generation has, is not worth waking the threads for.
  template <class F>
  void rows(int64_t n, const F& f) const {
#pragma omp parallel for schedule(static) if (n > 1)
    for (int64_t row = 0; row < n; ++row) f(SerialGroup{}, row);
  }
  template <class F>
  void units(int64_t n, const F& f) const {
#pragma omp parallel for schedule(static)
    for (int64_t unit = 0; unit < n; ++unit) f(SerialGroup{}, unit);
  }
};
static_assert(Exec<CpuExec>);

}  // namespace mpt
