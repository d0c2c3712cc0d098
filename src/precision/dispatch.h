// Maps the run-time DType of a tensor to the compile-time storage type of a kernel.
#pragma once

#include <utility>

#include "core/bf16.h"
#include "core/check.h"
#include "core/enum_names.h"
#include "core/tensor.h"

namespace mpt {

// Calls f with a value-initialised float or bf16, which carries the type.
template <class F>
decltype(auto) dispatch(DType type, F&& f) {
  check(type == DType::kF32 || type == DType::kBF16, "no kernel for elements of type {}",
        name_of(type));
  return type == DType::kF32 ? std::forward<F>(f)(float{}) : std::forward<F>(f)(bf16{});
}

}  // namespace mpt
