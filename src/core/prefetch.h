// Prefetching: memory requested before it is read or written, so that it arrives while something else is computed.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace mpt {

inline constexpr int64_t kCacheLine = 64;  // bytes
constexpr int64_t cache_lines(int64_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine; }

enum class Use : uint8_t { kRead, kWrite };
// Where it is to lie: memory that is used at once, or memory of which more is under way than the first holds.
enum class Cache : uint8_t { kFirst, kSecond };

// Requests a line every kCacheLine bytes from `first`, which may lie behind memory's end: nothing is read.
// Always inline: GCC 12 takes a call of what only prefetches for one without an effect.
template <Use kUse = Use::kRead, Cache kCache = Cache::kFirst>
MPT_ALWAYS_INLINE MPT_HD void prefetch(const void* first, int64_t bytes) {
  const auto* const memory = static_cast<const char*>(first);
  for (int64_t byte = 0; byte < bytes; byte += kCacheLine)
    __builtin_prefetch(memory + byte, kUse == Use::kWrite, kCache == Cache::kFirst ? 3 : 2);
}

// In a loop over contiguous elements that is at `at`: what it will reach kPrefetchDistance bytes later.
inline constexpr int64_t kPrefetchDistance = 4096;

template <int kCount, Use kUse = Use::kRead, class T>
MPT_ALWAYS_INLINE MPT_HD void prefetch_ahead(const T* at) {
  prefetch<kUse>(reinterpret_cast<const char*>(at) + kPrefetchDistance, kCount * int64_t(sizeof(T)));
}

}  // namespace mpt
