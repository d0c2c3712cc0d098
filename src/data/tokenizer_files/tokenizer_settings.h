// What files beside a tokenizer of Hugging Face say of it: tokenizer_config.json and
// added_tokens.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/io/file_system.h"

namespace mpt {

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// In exports of this program whose tokenizer.json has a template that may say otherwise.
inline constexpr const char* kTextsBeginWithBos = "texts_begin_with_bos";

struct TokenizerSettings {
  std::optional<bool> begin_with_bos{};    // kTextsBeginWithBos, else add_bos_token
  std::string bos_token{}, eos_token{};    // "": not named
  std::map<int64_t, std::string> added{};  // tokens beside those of the tokenizer, by id
};

// Files that are not there say nothing, nor does what has another shape than transformers writes.
// Throws Error naming a file that is no JSON.
TokenizerSettings read_tokenizer_settings(FileSystem& fs, const std::string& directory);

}  // namespace mpt
