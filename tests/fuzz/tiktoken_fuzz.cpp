// Reads any bytes as settings and pieces of a tiktoken file; an accepted one encodes and decodes a
// text.
#include "fuzz/input_directory.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  constexpr std::string_view kText = "The  year 1984,\n\tÄpfel and \xF0\x9F\x8D\x8E aaaaaaaa.";
  std::string_view input = fuzz::text_of(data, size);
  const std::string_view settings = fuzz::next_part(input);
  fuzz::write_input("ranks.tiktoken.json", settings);
  const std::string path = fuzz::write_input("ranks.tiktoken", input);
  fuzz::accept_or_refuse([&] {
    const Tokenizer tokenizer = Tokenizer::load(path);
    const std::vector<int32_t> ids = tokenizer.encode(kText);
    (void)tokenizer.decode(ids);
    for (const int32_t id : ids) (void)tokenizer.id_to_piece(id);
  });
  return 0;
}
