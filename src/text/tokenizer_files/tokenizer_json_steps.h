// The keys "normalizer", "pre_tokenizer" and "decoder" of tokenizer.json.
//
// All throw Error naming the key, what was found and what would be accepted.
#pragma once

#include "core/json/json_node.h"
#include "text/subword/bpe.h"
#include "text/subword/normalizer.h"
#include "text/subword/pre_tokenizer.h"
#include "text/subword/text_decoder.h"

namespace mpt {

Normalizer read_normalizer(const JsonNode& node);

struct ReadPreTokenizer {
  PreTokenizer steps;
  Symbols symbols = Symbols::kCharacters;  // units that the model sees
};
// `normalizer`: the one applied before it.
ReadPreTokenizer read_pre_tokenizer(const JsonNode& node, const Normalizer& normalizer);

TextDecoder read_decoder(const JsonNode& node);

}  // namespace mpt
