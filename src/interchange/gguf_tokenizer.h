// The tokenizer in the metadata of a GGUF file (docs/formats.md "GGUF").
#pragma once

#include <cstdint>

#include "interchange/gguf.h"
#include "interchange/hugging_face_config.h"
#include "text/tokenizer.h"

namespace mpt {

// Adds the keys tokenizer.ggml.*: SentencePiece models as `llama`, byte-level BPE of tokenizer.json
// files as `gpt2`. `ids`: each a piece or null. Throws Error if llama.cpp would produce other ids,
// and warns if that is rare.
void add_tokenizer(GgufMetadata& metadata, const Tokenizer& tokenizer, const SpecialIds& ids,
                   int64_t vocab_size, bool prepend_bos);

}  // namespace mpt
