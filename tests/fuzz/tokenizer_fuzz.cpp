// Reads any bytes as a SentencePiece model; an accepted one encodes and decodes a text, and is
// exported.
#include "fuzz/exported_tokenizer.h"
#include "fuzz/input_directory.h"
#include "text/corpus/text_encoder.h"
#include "text/corpus/word_cache.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  constexpr std::string_view kText = "The  year 1984,\n\tÄpfel \xE2\x96\x81 and \xF0\x9F\x8D\x8E.";
  const std::string path = fuzz::write_input("tokenizer.model", fuzz::text_of(data, size));
  fuzz::accept_or_refuse([&] {
    const Tokenizer tokenizer = Tokenizer::load(path);
    WordCache words;
    std::vector<int32_t> ids;
    TextEncoder(tokenizer, words).append(kText, ids);
    (void)tokenizer.decode(ids);
    for (const int32_t id : ids) (void)tokenizer.id_to_piece(id);
    for (const int64_t id : {tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id()})
      check(id >= -1 && id < tokenizer.vocab_size(), "special id {}", id);
    fuzz::export_or_refuse(tokenizer);
  });
  return 0;
}
