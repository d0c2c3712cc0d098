// Hashes for tables whose keys come from files. They depend on a number drawn at program start, so
// that nobody can craft a file whose keys collide. No result may depend on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mpt {

// Two numbers, drawn once.
struct HashSeed {
  uint64_t added, factor;  // the factor is odd

  static const HashSeed& of_process();
};

// Every bit of the key affects all bits of the result's upper half.
inline uint64_t seeded_hash(uint64_t key, const HashSeed& seed) {
  key = (key + seed.added) * seed.factor;
  key = (key ^ key >> 32) * seed.factor;
  return (key ^ key >> 29) * seed.factor;
}

// For std::unordered_map and std::unordered_set.
struct SeededTextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const;
};

}  // namespace mpt
