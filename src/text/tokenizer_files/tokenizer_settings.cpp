#include "text/tokenizer_files/tokenizer_settings.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "core/json/json_parse.h"

namespace mpt {
namespace {

using nlohmann::json;

// Reads an object; empty if the file is missing.
json object_in(FileSystem& fs, const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;
  if (!has_optional_file(fs, path)) return json::object();
  json content = parse_plain_json(fs.read_file(path, kMostBytes), path);
  if (!content.is_object()) return json::object();
  return content;
}

// A token is its text, or an object containing it.
std::string token_text(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  const auto content = token.is_object() ? token.find("content") : token.end();
  return content != token.end() && content->is_string() ? content->get<std::string>() : "";
}

// {"<|im_end|>": 5000}
void add_ids_of_tokens(const json& tokens, std::map<int64_t, std::string>& added) {
  for (const auto& [text, id] : tokens.items())
    if (id.is_number_integer()) added[id.get<int64_t>()] = text;
}

// {"5000": {"content": "<|im_end|>"}}
void add_tokens_of_ids(const json& tokens, std::map<int64_t, std::string>& added) {
  if (!tokens.is_object()) return;
  for (const auto& [number, token] : tokens.items()) {
    int64_t id = 0;
    const char* const end = number.data() + number.size();
    if (std::from_chars(number.data(), end, id).ec == std::errc()) added[id] = token_text(token);
  }
}

}  // namespace

TokenizerSettings read_tokenizer_settings(FileSystem& fs, const std::string& directory) {
  const json config = object_in(fs, in_directory(directory, kTokenizerConfig));
  const auto value = [&](const char* key) { return config.value(key, json()); };
  TokenizerSettings settings{.bos_token = token_text(value("bos_token")),
                             .eos_token = token_text(value("eos_token"))};
  for (const char* const key : {"add_bos_token", kTextsBeginWithBos})
    if (const json flag = value(key); flag.is_boolean()) settings.begin_with_bos = flag.get<bool>();
  add_ids_of_tokens(object_in(fs, in_directory(directory, "added_tokens.json")), settings.added);
  add_tokens_of_ids(value("added_tokens_decoder"), settings.added);
  return settings;
}

}  // namespace mpt
