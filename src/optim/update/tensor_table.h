// A pass over many tensors: a table in device memory with a functor and a range of items per
// tensor.
//
//   [functors of the tensors][items of each]    all functors of one type
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/block_range.h"
#include "core/host_device.h"
#include "device/memory.h"
#include "optim/update/tensor_inputs.h"

namespace mpt {

// Items of a tensor: from `first` to the `first` of the next tensor. Item i of the pass is item i +
// shift of the tensor.
struct TensorItems {
  int64_t first;
  int64_t shift;
};

// The last i in [0, count) with first(i) <= item.
template <class First>
MPT_HD int64_t last_from(int64_t count, int64_t item, const First& first) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first(middle) <= item)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Table entry of a tensor: its functor and its items.
template <class Functor>
struct TableRow {
  Functor functor;
  BlockRange items;
};

// Functor of the pass: applies a tensor's functor to each of its items, as f(group, item within the
// tensor). Does nothing if the step does not proceed.
template <class Functor>
struct TensorTable {
  static_assert(std::is_trivially_copyable_v<Functor>);

  const Functor* functors;
  const TensorItems* items;
  int64_t count;
  const StepControl* control;  // null: always proceeds

  TensorTable(const std::byte* data, int64_t tensors, const StepControl* control_of_step)
      : functors(reinterpret_cast<const Functor*>(data)),
        items(reinterpret_cast<const TensorItems*>(data + items_offset(tensors))),
        count(tensors),
        control(control_of_step) {}

  static int64_t items_offset(int64_t tensors) {
    return align_up(tensors * int64_t{sizeof(Functor)}, 16);
  }
  static int64_t bytes(int64_t tensors) {
    return align_up(items_offset(tensors) + tensors * int64_t{sizeof(TensorItems)}, 16);
  }
  // Writes the table; row(i) returns the TableRow of tensor i.
  template <class Row>
  static void write(size_t tensors, std::byte* image, const Row& row) {
    std::byte* const items = image + items_offset(int64_t(tensors));
    int64_t first = 0;
    for (size_t i = 0; i < tensors; ++i) {
      const TableRow<Functor> tensor = row(i);
      const TensorItems own{first, tensor.items.first - first};
      memcpy(image + i * sizeof(Functor), &tensor.functor, sizeof(Functor));
      memcpy(items + i * sizeof own, &own, sizeof own);
      first += tensor.items.count;
    }
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t item) const {
    if constexpr (G::kLanes == 1) {
      run(group, item, item + 1);
    } else {
      if (!proceeds()) return;
      const int64_t i = tensor_of(item);
      functors[i](group, item + items[i].shift);
    }
  }

  // Copies the functor, so the compiler knows that its writes cannot change it. A GPU would keep
  // the copy in memory, so it does not use this path.
  template <class G>
  MPT_HD void run(G group, int64_t first, int64_t end) const {
    if (!proceeds()) return;
    for (int64_t i = tensor_of(first), item = first; item < end; ++i) {
      const Functor f = functors[i];
      const int64_t stop = i + 1 < count ? min_of(items[i + 1].first, end) : end;
      const int64_t shift = items[i].shift;
      if constexpr (requires { f.run(group, item, stop); }) {
        f.run(group, item + shift, stop + shift);
        item = stop;
      } else {
        for (; item < stop; ++item) f(group, item + shift);
      }
    }
  }

 private:
  [[nodiscard]] MPT_HD bool proceeds() const { return control == nullptr || control->proceed != 0; }
  [[nodiscard]] MPT_HD int64_t tensor_of(int64_t item) const {
    const TensorItems* const of_tensor = items;
    return last_from(count, item, [=](int64_t k) { return of_tensor[k].first; });
  }
};

}  // namespace mpt
