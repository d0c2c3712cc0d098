// Reads any bytes as tokenizer_config.json, added_tokens.json and generation_config.json of a
// Hugging Face directory.
#include "fuzz/input_directory.h"
#include "interchange/hugging_face_config.h"
#include "text/tokenizer_files/tokenizer_settings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  std::string_view text = fuzz::text_of(data, size);
  fuzz::write_input("tokenizer_config.json", fuzz::next_part(text));
  fuzz::write_input("added_tokens.json", fuzz::next_part(text));
  fuzz::accept_or_refuse([&] {
    (void)read_tokenizer_settings(posix_file_system(), fuzz::input_directory().path());
    SourceTexts texts;
    texts.ids = with_generation_config({}, text, "generation_config.json");
    for (const nlohmann::json& ids : {texts.ids.bos, texts.ids.eos, texts.ids.pad})
      for (const int64_t id : SpecialIds::within(ids, 100)) check(id >= 0 && id < 100, "id {}", id);
    check(SourceTexts::of_json(texts.json()).json() == texts.json(), "other texts are read again");
  });
  return 0;
}
