// The three iteration shapes a backend supplies; every formula of the model and the optimizers runs in one.
//
//   exec.elements(n, f)   f(i)            independent elements: casts, zeroing
//   exec.rows(n, f)       f(group, row)   group.each, sum and max: norms, softmax, cross entropy
//   exec.blocks(n, f)     f(group, block) group.reduce_max only: the same bits for any lanes and threads
//   Exec::Group           the group it hands to f
//
// f is a functor of plain pointers and numbers, copied to where it runs. One of rows may have memory(row),
// which says where that row is read and written (RowMemory), for backends that prefetch. One of blocks may
// also have run(group, first, end), which does the same for a span of them: a backend whose groups work
// through many spares what they have in common.
#pragma once

#include <cstdint>

#include "core/group.h"

namespace mpt {

// Functors of the two kinds, for the concept to try.
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
