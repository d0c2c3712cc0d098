// Duration of a piece of work.
#pragma once

#include <chrono>

namespace mpt {

template <class F>
double seconds_of(const F& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mpt
