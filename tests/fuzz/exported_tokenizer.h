// What exports make of a tokenizer that its reader has accepted.
#pragma once

#include "data/tokenizer.h"
#include "data/tokenizer_json.h"
#include "inference/gguf_tokenizer.h"

namespace mpt::fuzz {

// The metadata of a GGUF file and, of a SentencePiece model, tokenizer.json; either may be refused.
inline void export_or_refuse(const Tokenizer& tokenizer) {
  try {
    GgufMetadata metadata;
    add_tokenizer(metadata, tokenizer, {.bos = {}, .eos = 0, .pad = {}}, tokenizer.vocab_size(),
                  false);
    if (tokenizer.kind() != TokenizerKind::kSentencePiece) return;
    const SentencePieceModel model = parse_sentencepiece_model(tokenizer.model_bytes());
    (void)tokenizer_json(model, tokenizer.bos_id()).dump();
  } catch (const Error& refusal) {
    (void)refusal;
  }
}

}  // namespace mpt::fuzz
