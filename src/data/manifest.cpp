#include "data/manifest.h"

#include <filesystem>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/json/json_parse.h"
#include "data/token_shard.h"

namespace mpt {
namespace {

using nlohmann::json;

constexpr const char* kFormatName = "mpretrain token shards";
constexpr int64_t kMostManifestBytes = int64_t{64} << 20;
constexpr size_t kMostNameBytes = 100;
constexpr int64_t kMostCount = int64_t{1} << 53;  // exact in every JSON parser

// Typed access to a JSON object in the manifest; errors name the file and the field's path.
class Fields {
 public:
  Fields(const std::string& file, std::string where, const json& object)
      : file_(file), where_(std::move(where)), object_(object) {
    if (!object.is_object())
      throw error("{}: {} is not a JSON object", file_, where_.empty() ? "the top level" : where_);
  }

  [[nodiscard]] std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string()) wrong(key, "a string");
    return value.get<std::string>();
  }
  [[nodiscard]] int64_t integer(const char* key, int64_t least, int64_t most = kMostCount) const {
    const json& value = at(key);
    if (!value.is_number_integer()) wrong(key, "an integer");
    const bool beyond =
        value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
    if (beyond || value.get<int64_t>() < least)
      wrong(key, fmt::format("at least {} and at most {}", least, most));
    return value.get<int64_t>();
  }
  [[nodiscard]] double number(const char* key) const {
    const json& value = at(key);
    if (!value.is_number()) wrong(key, "a number");
    return value.get<double>();
  }
  [[nodiscard]] Fields object(const std::string& key) const {
    return {file_, path_of(key), at(key)};
  }
  // Calls f with the fields of each object in a list.
  template <class F>
  void each(const char* key, const F& f) const {
    const json& value = at(key);
    if (!value.is_array()) wrong(key, "an array");
    for (size_t i = 0; i < value.size(); ++i)
      f(Fields(file_, fmt::format("{}[{}]", path_of(key), i), value[i]));
  }
  [[nodiscard]] const json& value() const { return object_; }

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const {
    return where_.empty() ? key : where_ + "." + key;
  }
  [[nodiscard]] const json& at(const std::string& key) const {
    if (!object_.contains(key)) throw error("{}: field {} is missing", file_, path_of(key));
    return object_.at(key);
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const {
    throw error("{}: field {} is {}; expected {}", file_, path_of(key), json_text(at(key)), wanted);
  }

  const std::string& file_;
  std::string where_;
  const json& object_;
};

// Requires a bare file name, so that a manifest cannot make the program read outside its directory.
std::string plain_name(const Fields& fields, const char* key, const std::string& path) {
  const std::string name = fields.text(key);
  if (name.empty() || name != std::filesystem::path(name).filename())
    throw error("{}: '{}' is not the name of a file in the same directory", path, name);
  return name;
}

ManifestTokenizer tokenizer_from(const Fields& fields, const std::string& path) {
  return {.file = plain_name(fields, "file", path),
          .hash = fields.text("hash"),
          .vocab_size = fields.integer("vocab_size", 1),
          .bos_id = fields.integer("bos_id", -1),
          .eos_id = fields.integer("eos_id", -1)};
}

ManifestSplit split_from(const Fields& fields, const std::string& path) {
  ManifestSplit split{.documents = fields.integer("documents", 0),
                      .tokens = fields.integer("tokens", 0),
                      .text_bytes = fields.integer("text_bytes", 0),
                      .unigram_entropy_nats = fields.number("unigram_entropy_nats"),
                      .shards = {}};
  int64_t tokens = 0;
  fields.each("shards", [&](const Fields& shard) {
    split.shards.push_back({plain_name(shard, "file", path),
                            shard.integer("tokens", 1, kMaxTokensPerShard), shard.text("hash")});
    tokens += split.shards.back().tokens;
  });
  if (tokens != split.tokens)
    throw error("{}: a split lists {} tokens, but its shards add up to {}", path, split.tokens,
                tokens);
  return split;
}

json json_of(const ManifestSplit& split) {
  json shards = json::array();
  for (const ManifestShard& shard : split.shards)
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"hash", shard.hash}});
  return {{"documents", split.documents},
          {"tokens", split.tokens},
          {"text_bytes", split.text_bytes},
          {"unigram_entropy_nats", split.unigram_entropy_nats},
          {"shards", shards}};
}

}  // namespace

Manifest Manifest::load(const std::string& path) {
  require_regular_file(path);
  const json content =
      parse_plain_json(posix_file_system().read_file(path, kMostManifestBytes), path);
  const Fields top(path, "", content);
  if (top.text("format") != kFormatName)
    throw error("{}: format is '{}'; expected '{}'", path, top.text("format"), kFormatName);
  if (const int64_t version = top.integer("format_version", 0); version != kFormatVersion)
    throw error("{}: format_version is {}; this program reads {}", path, version, kFormatVersion);
  Manifest manifest;
  manifest.tokenizer = tokenizer_from(top.object("tokenizer"), path);
  const Fields splits = top.object("splits");
  for (const auto& [name, unused] : splits.value().items()) {
    if (name.size() > kMostNameBytes)
      throw error("{}: the name of a split has {} bytes; at most {} are accepted", path,
                  name.size(), kMostNameBytes);
    manifest.splits[name] = split_from(splits.object(name), path);
  }
  manifest.options = top.object("options").value();
  return manifest;
}

void Manifest::save(const std::string& path, FileSystem& fs) const {
  json splits_json = json::object();
  for (const auto& [name, split] : splits) splits_json[name] = json_of(split);
  const json content{{"format", kFormatName},
                     {"format_version", kFormatVersion},
                     {"tokenizer",
                      {{"file", tokenizer.file},
                       {"hash", tokenizer.hash},
                       {"vocab_size", tokenizer.vocab_size},
                       {"bos_id", tokenizer.bos_id},
                       {"eos_id", tokenizer.eos_id}}},
                     {"splits", splits_json},
                     {"options", options.is_null() ? json::object() : options}};
  // Paths in the options may be invalid UTF-8; that must not prevent writing the manifest.
  write_file_atomically(fs, path, bytes_of(json_text(content, 2) + "\n"));
}

const ManifestShard* Manifest::find_shard(const std::string& file) const {
  for (const auto& [name, split] : splits)
    for (const ManifestShard& shard : split.shards)
      if (shard.file == file) return &shard;
  return nullptr;
}

void Manifest::verify_contents(const std::string& directory) const {
  for (const auto& [name, split] : splits) {
    for (const ManifestShard& listed : split.shards) {
      const TokenShard shard((std::filesystem::path(directory) / listed.file).string());
      if (shard.tokens() != listed.tokens)
        throw error("{}: has {} tokens, but {} lists {}", shard.path(), shard.tokens(),
                    kManifestName, listed.tokens);
      if (const std::string hash = shard.content_hash(); hash != listed.hash)
        throw error(
            "{}: content hash is {}, but {} lists {}; the shard was changed or is corrupted",
            shard.path(), hash, kManifestName, listed.hash);
    }
  }
}

std::optional<Manifest> manifest_beside(const std::string& shard_path) {
  const std::string path = in_directory(parent_directory(shard_path), kManifestName);
  if (!has_optional_file(posix_file_system(), path)) return std::nullopt;
  return Manifest::load(path);
}

}  // namespace mpt
