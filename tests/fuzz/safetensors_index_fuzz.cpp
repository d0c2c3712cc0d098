// Reads any bytes as model.safetensors.index.json; no accepted file is outside the directory.
#include "fuzz/input_directory.h"
#include "interchange/hugging_face_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  fuzz::accept_or_refuse([&] {
    for (const auto& [tensor, file] :
         tensor_files_of_index(fuzz::text_of(data, size), "model.safetensors.index.json"))
      check(!file.empty() && file.find('/') == std::string::npos, "{} is in {}", tensor, file);
  });
  return 0;
}
