// An Exec that runs update blocks on the lanes of a lockstep group, rows and elements on one lane.
#pragma once

#include "device/exec.h"
#include "support/lockstep_group.h"

namespace mpt::test {

template <int kWidth>
struct LockstepExec {
  using Group = LockstepGroup<kWidth>;

  template <class F>
  void elements(int64_t n, const F& f) const {
    for (int64_t i = 0; i < n; ++i) f(i);
  }
  template <class F>
  void rows(int64_t n, const F& f) const {
    for (int64_t row = 0; row < n; ++row) f(SerialGroup{}, row);
  }
  template <class F>
  void blocks(int64_t n, const F& f) const {
    run_lockstep<kWidth>(n, f);
  }
};

}  // namespace mpt::test
