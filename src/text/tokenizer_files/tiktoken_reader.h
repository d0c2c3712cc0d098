// Reads tiktoken files; encoding matches the ids of that library's encode_ordinary().
//
// A tiktoken file has lines "piece rank", the piece in base64, and specifies neither how text is
// split nor the special tokens. A JSON file next to it does, NAME.json for NAME:
//
//   {"pattern": "cl100k_base", "special_tokens": {"<|endoftext|>": 100257},
//    "eos_token": "<|endoftext|>", "bos_token": null}
//
// The pattern is a regular expression or the name of a known one. This program combines the two
// into a single file, with the JSON on the first line; that file is copied into data, runs and
// checkpoints.
#pragma once

#include <string>
#include <string_view>

#include "text/subword/subword_tokenizer.h"

namespace mpt {

// Whether the file begins like a tiktoken file.
bool is_tiktoken(std::string_view content);
// Whether it begins with a line of settings, followed by a tiktoken file.
bool is_tiktoken_with_settings(std::string_view content);

// Combines the two files. Throws Error if the settings are not JSON.
std::string tiktoken_with_settings(std::string_view settings, std::string_view ranks);

struct TiktokenFiles {
  std::string settings, ranks;
};
TiktokenFiles tiktoken_files(std::string_view with_settings);

// Treats special tokens spelled in a text as ordinary text. Throws Error naming the line or key,
// what was found and what would be accepted.
SubwordTokenizer read_tiktoken(std::string_view with_settings);

}  // namespace mpt
