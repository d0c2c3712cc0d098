// Units of work of many tensors in one pass: what each tensor's functor is, and where its items begin, lie in
// device memory.
//
//   [functors of the tensors][first item of each]    all of one type of functor
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/host_device.h"
#include "device/memory_plan.h"
#include "optim/update_unit.h"

namespace mpt {

// The last i with first[i] <= item.
MPT_HD int64_t tensor_of(const int64_t* first, int64_t count, int64_t item) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first[middle] <= item)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <class Functor>
struct TensorTable {
  static_assert(std::is_trivially_copyable_v<Functor>);

  const Functor* functors;
  const int64_t* first;
  int64_t count;

  TensorTable(const std::byte* data, int64_t tensors)
      : functors(reinterpret_cast<const Functor*>(data)),
        first(reinterpret_cast<const int64_t*>(data + first_offset(tensors))),
        count(tensors) {}

  static int64_t first_offset(int64_t tensors) { return align_up(tensors * int64_t{sizeof(Functor)}, 16); }
  static int64_t bytes(int64_t tensors) { return align_up(first_offset(tensors) + tensors * 8, 16); }
};

// f(group, item of its tensor) for every item of all tensors; nothing where the step does not proceed.
template <class Functor>
struct ForEachTensor {
  TensorTable<Functor> table;
  const StepControl* control;  // null: always

  template <class G>
  MPT_HD void operator()(G group, int64_t item) const {
    if (control != nullptr && control->proceed == 0) return;
    const int64_t i = tensor_of(table.first, table.count, item);
    call(table.functors[i], group, item - table.first[i]);
  }

 private:
  // On a GPU a copy would lie in memory. On a CPU, where it does anyway, it tells the compiler that nothing
  // that f writes can change it.
  template <class G>
  MPT_HD static void call(const Functor& functor, G group, int64_t item) {
    if constexpr (G::kLanes > 1) {
      functor(group, item);
    } else {
      const Functor f = functor;
      f(group, item);
    }
  }
};

}  // namespace mpt
