// A group is the set of lanes working on one row or one update block. Formulas are templates over
// it.
//
// Row formulas use each(), sum() and max(), which take a whole index range and distribute it over
// the lanes. Update-block formulas (optimizer, quantisation) own kUpdateBlock consecutive elements,
// with lane l holding elements [l * kUpdateBlock / kLanes, (l + 1) * kUpdateBlock / kLanes). There,
// only reduce_max() crosses lanes, over all of them or over aligned runs of them (a scale block). A
// maximum is exact and order-independent, so the bits of an update block do not depend on the
// number of lanes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

// Elements of an update block: consecutive elements of one row; a row's last block may be shorter.
// A multiple of every scale block size.
inline constexpr int kUpdateBlock = 256;

// Contiguous memory read or written by one row of a formula; used for prefetching.
struct RowMemory {
  const std::byte* first;
  int64_t bytes, left = bytes;

  template <class T>
  static RowMemory of(const T* first, int64_t count) {
    return {reinterpret_cast<const std::byte*>(first),
            first == nullptr ? 0 : count * int64_t(sizeof(T))};
  }
};

// The CPU's group: a single lane, whose loops the compiler vectorises.
struct SerialGroup {
  static constexpr int kLanes = 1;
  static constexpr int64_t lane() { return 0; }

  // Calls f(i) for every i in [0, n), in any order and possibly concurrently: iterations must be
  // independent.
  template <class F>
  static void each(int64_t n, const F& f) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) f(i);
  }

  // Sum of f(i), in an order that depends only on n: 32 running sums, then a tree. The bits are the
  // same on every instruction set if f rounds the same (exact layers contract nothing into the
  // additions).
  template <class F>
  static auto sum(int64_t n, const F& f) {
    return reduce<0>(n, f, [](auto a, auto b) { return a + b; });
  }
  // Maximum of f(i); -Inf when n is 0. NaNs are ignored.
  template <class F>
  static auto max(int64_t n, const F& f) {
    return reduce<1>(n, f, [](auto a, auto b) { return max_of(b, a); });
  }
  // Maximum of x over the aligned run of `lanes` lanes (a power of two) containing this lane.
  static float reduce_max(float x, int /*lanes*/ = kLanes) { return x; }

 private:
  static constexpr int kRunning = 32;

  template <int kIsMax, class F, class Combine>
  static auto reduce(int64_t n, const F& f, const Combine& combine) {
    using T = decltype(f(int64_t{0}));
    std::array<T, kRunning> running;
    running.fill(kIsMax ? T(-INFINITY) : T(0));
    const int64_t whole = n / kRunning * kRunning;
    for (int64_t i = 0; i < whole; i += kRunning) {
#pragma omp simd
      for (int j = 0; j < kRunning; ++j) running[size_t(j)] = combine(running[size_t(j)], f(i + j));
    }
    for (int64_t i = whole; i < n; ++i)
      running[size_t(i - whole)] = combine(running[size_t(i - whole)], f(i));
    for (int width = kRunning / 2; width > 0; width /= 2)
      for (int j = 0; j < width; ++j)
        running[size_t(j)] = combine(running[size_t(j)], running[size_t(j + width)]);
    return running[0];
  }
};

}  // namespace mpt
