// Exports of a tokenizer that its reader has accepted.
#pragma once

#include "interchange/gguf_tokenizer.h"
#include "text/sentencepiece/to_tokenizer_json.h"
#include "text/tokenizer.h"

namespace mpt::fuzz {

// The metadata of a GGUF file and, for a SentencePiece model, tokenizer.json; either may be
// refused.
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
