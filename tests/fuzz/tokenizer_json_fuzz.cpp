// Reads any bytes as tokenizer.json; an accepted one encodes and decodes a text, and is exported.
#include "fuzz/exported_tokenizer.h"
#include "fuzz/input_directory.h"
#include "text/tokenizer_files/tokenizer_json_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  constexpr std::string_view kText =
      "The  year 1984,\n\tÄpfel \xE2\x96\x81 and \xF0\x9F\x8D\x8E <|endoftext|> aaaaaaaa.";
  fuzz::accept_or_refuse([&] {
    const SubwordTokenizer tokenizer = read_tokenizer_json(fuzz::text_of(data, size));
    const std::vector<int32_t> ids = tokenizer.encode(kText);
    (void)tokenizer.decode(ids);
    for (const int32_t id : ids) {
      check(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
      (void)tokenizer.piece(id);
    }
    for (const int64_t id : {tokenizer.parts().bos, tokenizer.parts().eos, tokenizer.parts().pad})
      check(id >= -1 && id < tokenizer.vocab_size(), "special id {}", id);
    fuzz::export_or_refuse(
        Tokenizer::load(fuzz::write_input("tokenizer.json", fuzz::text_of(data, size))));
  });
  return 0;
}
