// Reads tokenizer.json, the format of Hugging Face's tokenizers library; encoding matches that
// library's ids. Unsupported contents are refused by key.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/subword/subword_tokenizer.h"

namespace mpt {

inline constexpr int64_t kMaxTokenizerBytes = int64_t{64} << 20;

// BOS and EOS are the tokens that post_processor puts before and after a text, or else added
// special tokens with one of the names that models use for them (docs/formats.md).
//
// Throws Error naming the key, what was found and what would be accepted.
SubwordTokenizer read_tokenizer_json(std::string_view content);

}  // namespace mpt
