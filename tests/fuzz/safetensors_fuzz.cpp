// Reads any bytes as a safetensors file: its header, then every tensor listed there.
#include "core/io/safetensors.h"
#include "fuzz/input_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  const std::string path = fuzz::write_input("model.safetensors", fuzz::text_of(data, size));
  fuzz::accept_or_refuse([&] {
    const SafetensorsReader file(posix_file_system(), path);
    int64_t bytes = 0;
    for (const auto& entry : file.tensors()) {
      const std::vector<std::byte> content = file.read(file.at(entry.name));
      check(std::ssize(content) == entry.bytes(), "{}: {} bytes of {}", entry.name, content.size(),
            entry.description());
      bytes += std::ssize(content);
    }
    check(bytes < std::ssize(fuzz::text_of(data, size)), "{} bytes of a smaller file", bytes);
  });
  return 0;
}
