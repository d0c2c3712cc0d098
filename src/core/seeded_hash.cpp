#include "core/seeded_hash.h"

#include <random>

#include <xxhash.h>

namespace mpt {
namespace {

uint64_t drawn() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

const HashSeed& HashSeed::of_process() {
  static const HashSeed seed{drawn(), drawn() | 1};
  return seed;
}

size_t SeededTextHash::operator()(std::string_view text) const {
  return XXH3_64bits_withSeed(text.data(), text.size(), HashSeed::of_process().added);
}

}  // namespace mpt
