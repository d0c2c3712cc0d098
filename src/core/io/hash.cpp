#include "core/io/hash.h"

#include <fstream>
#include <vector>

#include <xxhash.h>

#include "core/check.h"

namespace mpt {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Hasher::hex() const {
  const XXH128_hash_t digest = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

uint64_t hash_number(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.hex();
}

std::string hash_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw error("{}: cannot be opened for reading", path);
  Hasher hasher;
  std::vector<char> buffer(size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0)
    hasher.update(std::as_bytes(std::span(buffer.data(), static_cast<size_t>(file.gcount()))));
  if (file.bad()) throw error("{}: reading failed", path);
  return hasher.hex();
}

}  // namespace mpt
