// Reads tokenizer.json, the file of Hugging Face's tokenizers library, so that it gives the ids of
// that library. What is not read is refused by its key.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/subword/subword_tokenizer.h"

namespace mpt {

inline constexpr int64_t kMaxTokenizerBytes = int64_t{64} << 20;

// BOS and EOS are the tokens that post_processor puts before and after a text, or else added
// special tokens with one of the names that models have for them (docs/formats.md).
//
// Throws Error naming the key, what was found and what would be accepted.
SubwordTokenizer read_tokenizer_json(std::string_view content);

}  // namespace mpt
