// Reads any bytes as a corpus compressed by zstd.
#include "fuzz/corpus_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  fuzz::read_corpus_file(fuzz::write_input("corpus.txt.zst", fuzz::text_of(data, size)));
  return 0;
}
