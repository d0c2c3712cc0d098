// Reads any bytes as the document index of a token shard of 64 tokens.
#include "data/document_index.h"
#include "fuzz/input_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  constexpr int64_t kTokens = 64;
  const std::string path = fuzz::write_input("train_000000.idx", fuzz::text_of(data, size));
  fuzz::accept_or_refuse([&] {
    const DocumentIndex index(path, kTokens);
    for (int64_t document = 0; document < index.documents(); ++document)
      check(index.start(document) >= 0 && index.start(document) < kTokens,
            "document {} begins at {}", document, index.start(document));
  });
  return 0;
}
