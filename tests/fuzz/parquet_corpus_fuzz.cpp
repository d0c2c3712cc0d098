// Reads any bytes as a Parquet file.
#include "fuzz/corpus_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpt;
  fuzz::read_corpus_file(fuzz::write_input("corpus.parquet", fuzz::text_of(data, size)));
  return 0;
}
