// Reads tiktoken files, so that they give the ids of that library's encode_ordinary().
//
// A tiktoken file has lines "piece rank", the piece in base64, and says neither how text is split
// nor which special tokens there are. A JSON file beside it does, NAME.json for NAME:
//
//   {"pattern": "cl100k_base", "special_tokens": {"<|endoftext|>": 100257},
//    "eos_token": "<|endoftext|>", "bos_token": null}
//
// The pattern is a regular expression or the name of a known one. Both together, the JSON in the
// first line, are one file here: what is copied into data, runs and checkpoints.
#pragma once

#include <string>
#include <string_view>

#include "data/subword/subword_tokenizer.h"

namespace mpt {

// Whether the file begins like one of tiktoken.
bool is_tiktoken(std::string_view content);
// Whether it begins with a line of settings, which a file of tiktoken follows.
bool is_tiktoken_with_settings(std::string_view content);

// One file of both. Throws Error if the settings are not JSON.
std::string tiktoken_with_settings(std::string_view settings, std::string_view ranks);

struct TiktokenFiles {
  std::string settings, ranks;
};
TiktokenFiles tiktoken_files(std::string_view with_settings);

// Special tokens that a text spells are text like any other. Throws Error naming the line or key,
// what was found and what would be accepted.
SubwordTokenizer read_tiktoken(std::string_view with_settings);

}  // namespace mpt
