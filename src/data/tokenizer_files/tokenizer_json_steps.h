// The keys "normalizer", "pre_tokenizer" and "decoder" of tokenizer.json.
//
// All throw Error naming the key, what was found and what would be accepted.
#pragma once

#include "data/subword/bpe.h"
#include "data/subword/normalizer.h"
#include "data/subword/pre_tokenizer.h"
#include "data/subword/text_decoder.h"
#include "data/tokenizer_files/json_node.h"

namespace mpt {

Normalizer read_normalizer(const JsonNode& node);

struct ReadPreTokenizer {
  PreTokenizer steps;
  Symbols symbols = Symbols::kCharacters;  // what the model sees
};
// The normalizer that comes before it.
ReadPreTokenizer read_pre_tokenizer(const JsonNode& node, const Normalizer& normalizer);

TextDecoder read_decoder(const JsonNode& node);

}  // namespace mpt
