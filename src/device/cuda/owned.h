// Objects of C libraries that are destroyed by one function of a handle.
#pragma once

#include <memory>
#include <type_traits>

namespace mpt {

// What the function answers is of no use by then.
template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
template <class Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<kDestroy>>;

}  // namespace mpt
