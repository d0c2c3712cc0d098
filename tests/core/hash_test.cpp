// Content hashes: known values, streaming equals whole, files.
#include "core/io/hash.h"

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>

#include "core/check.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string pattern(size_t count) {
  std::string text(count, '\0');
  for (size_t i = 0; i < count; ++i) text[i] = char(i * 131 + i / 256);
  return text;
}

TEST(Hash, KnownContent) {
  EXPECT_EQ(hash_bytes({}), "99aa06d3014798d86001c324468d497f")
      << "published value of the empty input";
  const XXH128_hash_t digest = XXH3_128bits("mpretrain", 9);
  EXPECT_EQ(hash_bytes(bytes("mpretrain")),
            fmt::format("{:016x}{:016x}", digest.high64, digest.low64));
}

TEST(Hash, StreamingEqualsWhole) {
  for (const size_t count : {0, 1, 16, 17, 240, 241, 1000, 5000}) {
    const std::string text = pattern(count);
    for (const size_t piece : {1, 7, 64, 1024}) {
      Hasher hasher;
      for (size_t first = 0; first < count; first += piece)
        hasher.update(bytes(text).subspan(first, std::min(piece, count - first)));
      EXPECT_EQ(hasher.hex(), hash_bytes(bytes(text))) << count << " in pieces of " << piece;
    }
  }
}

TEST(Hash, ReadingItDoesNotEndIt) {
  Hasher hasher;
  hasher.update(bytes("ab"));
  EXPECT_EQ(hasher.hex(), hash_bytes(bytes("ab")));
  EXPECT_EQ(hasher.hex(), hash_bytes(bytes("ab")));
  hasher.update(bytes("c"));
  EXPECT_EQ(hasher.hex(), hash_bytes(bytes("abc")));
}

TEST(Hash, EveryBitMatters) {
  std::string text = pattern(300);
  const std::string before = hash_bytes(bytes(text));
  for (size_t i = 0; i < text.size(); i += 13) {
    text[i] = char(text[i] ^ 1);
    EXPECT_NE(hash_bytes(bytes(text)), before) << i;
    text[i] = char(text[i] ^ 1);
  }
  EXPECT_EQ(hash_bytes(bytes(text)), before);
}

TEST(Hash, Files) {
  const test::TempDirectory directory;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{1} << 20) + 1}) {
    const std::string path = directory / "file", text = pattern(count);
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(hash_file(path), hash_bytes(bytes(text))) << count;
  }
}

TEST(Hash, FilesThatCannotBeRead) {
  const test::TempDirectory directory;
  EXPECT_ERROR(hash_file(directory / "missing"), directory / "missing");
  EXPECT_ERROR(hash_file(directory.path()), directory.path());
}

}  // namespace
}  // namespace mpt
