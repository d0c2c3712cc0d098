// Reads any bytes as the manifest of token shards; an accepted one is written and read again.
#include "data/manifest.h"
#include "fuzz/input_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  const std::string path = fuzz::write_input(kManifestName, fuzz::text_of(data, size));
  fuzz::accept_or_refuse([&] {
    const Manifest manifest = Manifest::load(path);
    manifest.save(path);
    const Manifest again = Manifest::load(path);
    check(again.splits.size() == manifest.splits.size(), "{} splits became {}",
          manifest.splits.size(), again.splits.size());
  });
  return 0;
}
