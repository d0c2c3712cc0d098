// Iteration on the CPU: OpenMP threads over rows and update blocks, SIMD within.
#pragma once

#include <algorithm>

#include <omp.h>

#include "device/cpu/cpu_prefetch.h"
#include "device/exec.h"

namespace mpt {

struct CpuExec {
  using Group = SerialGroup;

  template <class F>
  void elements(int64_t n, const F& f) const {
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; ++i) f(i);
  }
  // A single row, as in generation, runs on the calling thread: waking the others costs more.
  template <class F>
  void rows(int64_t n, const F& f) const {
#pragma omp parallel for schedule(static) if (n > 1)
    for (int64_t row = 0; row < n; ++row) run_row(f, row, n);
  }
  template <class F>
  void blocks(int64_t n, const F& f) const {
#pragma omp parallel
    {
      const int64_t threads = omp_get_num_threads(), own = omp_get_thread_num();
      run(f, n * own / threads, n * (own + 1) / threads);
    }
  }

 private:
  template <class F>
  static void run_row(const F& f, int64_t row, int64_t rows) {
    if constexpr (requires { f.memory(row); }) {
      RowPrefetch next(f.memory(std::min(row + 1, rows - 1)));
      f(RowGroup(next), row);
    } else {
      f(SerialGroup{}, row);
    }
  }
  template <class F>
  static void run(const F& f, int64_t first, int64_t end) {
    if constexpr (requires { f.run(SerialGroup{}, first, end); })
      f.run(SerialGroup{}, first, end);
    else
      for (int64_t block = first; block < end; ++block) f(SerialGroup{}, block);
  }
};
static_assert(Exec<CpuExec>);

}  // namespace mpt
