// Reads any bytes as config.json of a Hugging Face directory; the parameters of an accepted one can
// be counted.
#include "fuzz/input_directory.h"
#include "interchange/hugging_face_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  fuzz::accept_or_refuse([&] {
    const HuggingFaceModel read =
        llama_config_of_hugging_face(fuzz::text_of(data, size), "config.json");
    check(read.model.hidden_size > 0 && read.model.num_attention_heads > 0, "a model of nothing");
  });
  return 0;
}
