// manifest.json, stored next to token shards: the tokenizer that produced them, the contents of
// each split, and checksums.
//
// `mpretrain tokenize` writes it last, so its presence means the shards are complete. It is
// optional; if present, the loader checks the shards against it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"

namespace mpt {

inline constexpr const char* kManifestName = "manifest.json";

struct ManifestShard {
  std::string file;  // name in the manifest's directory
  int64_t tokens = 0;
  std::string hash;  // TokenShard::content_hash
};

struct ManifestSplit {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t text_bytes = 0;               // UTF-8 bytes of the documents' text
  double unigram_entropy_nats = 0.0;    // -sum p ln p over the split's own token frequencies
  std::vector<ManifestShard> shards{};  // in stream order
};

struct ManifestTokenizer {
  std::string file;  // name in the manifest's directory
  std::string hash;  // content hash
  int64_t vocab_size = 0;
  int64_t bos_id = -1;  // -1: none
  int64_t eos_id = -1;
};

struct Manifest {
  static constexpr int64_t kFormatVersion = 1;

  ManifestTokenizer tokenizer;
  std::map<std::string, ManifestSplit> splits;  // "train", "val"
  nlohmann::json options;                       // tokenize options; informational

  // Throws Error naming the file and the missing or invalid field.
  static Manifest load(const std::string& path);
  void save(const std::string& path, FileSystem& fs = posix_file_system()) const;

  // Looks up a shard by file name; null if not listed.
  [[nodiscard]] const ManifestShard* find_shard(const std::string& file) const;
  // Checks that every shard exists with the listed token count and content hash; throws Error
  // otherwise. Reads all shards.
  void verify_contents(const std::string& directory) const;
};

// Returns the manifest in the directory of `shard_path`, if one exists.
std::optional<Manifest> manifest_beside(const std::string& shard_path);

}  // namespace mpt
