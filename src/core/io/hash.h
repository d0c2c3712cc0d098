// 128-bit content hashes (XXH3) for checksums of shards, tokenizers and checkpoint pieces. Not
// cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mpt {

// Streaming: call update() any number of times, then hex(), which returns 32 lowercase hex digits.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 64 bits (XXH3-64).
uint64_t hash_number(std::span<const std::byte> bytes);
std::string hash_bytes(std::span<const std::byte> bytes);
// Reads the file in pieces; throws Error naming the path on failure.
std::string hash_file(const std::string& path);

}  // namespace mpt
