// Settings from the files next to a Hugging Face tokenizer: tokenizer_config.json and
// added_tokens.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/io/file_system.h"

namespace mpt {

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// Written by this program's exports if a template in tokenizer.json may say otherwise.
inline constexpr const char* kTextsBeginWithBos = "texts_begin_with_bos";

struct TokenizerSettings {
  std::optional<bool> begin_with_bos{};    // kTextsBeginWithBos, else add_bos_token
  std::string bos_token{}, eos_token{};    // "": not named
  std::map<int64_t, std::string> added{};  // tokens added to those of the tokenizer, by id
};

// Ignores missing files and anything shaped differently from what transformers writes. Throws Error
// naming a file that is not JSON.
TokenizerSettings read_tokenizer_settings(FileSystem& fs, const std::string& directory);

}  // namespace mpt
