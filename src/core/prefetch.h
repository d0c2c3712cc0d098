// Prefetching: requests memory before it is read or written, so that it arrives during other work.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace mpt {

inline constexpr int64_t kCacheLine = 64;  // bytes
constexpr int64_t cache_lines(int64_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine; }

enum class Use : uint8_t { kRead, kWrite };
// Target cache level: L1 for memory used at once, L2 when more is in flight than L1 holds.
enum class Cache : uint8_t { kFirst, kSecond };

// Prefetches a line every kCacheLine bytes from `first`. The range may extend past the end of the
// memory, because nothing is read. Always inline: GCC 12 treats a call to a function that only
// prefetches as having no effect.
template <Use kUse = Use::kRead, Cache kCache = Cache::kFirst>
MPT_ALWAYS_INLINE MPT_HD void prefetch(const void* first, int64_t bytes) {
  const auto* const memory = static_cast<const char*>(first);
  for (int64_t byte = 0; byte < bytes; byte += kCacheLine)
    __builtin_prefetch(memory + byte, kUse == Use::kWrite, kCache == Cache::kFirst ? 3 : 2);
}

// For a loop over contiguous elements, currently at `at`: prefetches the elements reached
// kPrefetchDistance bytes later.
inline constexpr int64_t kPrefetchDistance = 4096;

template <int kCount, Use kUse = Use::kRead, class T>
MPT_ALWAYS_INLINE MPT_HD void prefetch_ahead(const T* at) {
  prefetch<kUse>(reinterpret_cast<const char*>(at) + kPrefetchDistance,
                 kCount * int64_t(sizeof(T)));
}

}  // namespace mpt
