// The three iteration shapes of a backend; every formula of the model and the optimizers runs in
// one of them.
//
//   exec.elements(n, f)   f(i)             independent elements: casts, zeroing
//   exec.rows(n, f)       f(group, row)    group.each, sum and max: norms, softmax, cross entropy
//   exec.blocks(n, f)     f(group, block)  group.reduce_max only: same bits for any lanes, threads
//   Exec::Group           the group passed to f
//
// f is a functor of plain pointers and numbers, copied to where it runs. A row functor may define
// memory(row), the memory that the row reads or writes (RowMemory), for backends that prefetch. A
// block functor may define run(group, first, end) to handle a span of blocks, so that a backend
// whose groups process many blocks computes shared values once.
#pragma once

#include <cstdint>

#include "core/group.h"

namespace mpt {

// Sample functors for the concept.
struct AnyElementFormula {
  MPT_HD void operator()(int64_t) const {}
};
struct AnyGroupFormula {
  template <class G>
  MPT_HD void operator()(G, int64_t) const {}
};

template <class E>
concept Exec = requires(const E exec, int64_t n) {
  exec.elements(n, AnyElementFormula{});
  exec.rows(n, AnyGroupFormula{});
  exec.blocks(n, AnyGroupFormula{});
};

}  // namespace mpt
