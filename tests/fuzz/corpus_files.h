// Reads a corpus file to its end, as `mpretrain tokenize` does.
#pragma once

#include <vector>

#include "core/text.h"
#include "data/corpus/corpus.h"
#include "data/corpus/input_stream.h"
#include "fuzz/input_directory.h"

namespace mpt::fuzz {

// Small files may unpack to very much, which takes time and no memory (SECURITY.md).
inline bool unpacks_to_much(const std::string& path) {
  constexpr size_t kMuch = 1 << 20;
  InputStream stream(path);
  std::vector<char> buffer(1 << 16);
  size_t unpacked = 0;
  while (const size_t count = stream.read(buffer))
    if ((unpacked += count) > kMuch) return true;
  return false;
}

// Every document must be UTF-8 with text, and no longer than was asked for. Pages of Parquet files
// unpack to very much too: the rest of those is not read.
inline void read_corpus(CorpusOptions options) {
  constexpr int64_t kMostDocuments = 1 << 18, kMostBytes = 1 << 26;
  const auto longest = static_cast<size_t>(options.max_document_bytes);
  CorpusReader corpus(std::move(options));
  for (std::string text; corpus.next(text);) {
    if (corpus.stats().documents > kMostDocuments || corpus.stats().text_bytes > kMostBytes) return;
    check(valid_utf8_prefix(text) == text.size() && !is_blank(text), "a document is not text");
    check(text.size() <= longest, "a document has {} bytes", text.size());
  }
}

// Once as by default, once with short documents and past bad ones; what unpacks to much is only
// unpacked, and not to its end.
inline void read_corpus_file(const std::string& path) {
  bool much = false;
  accept_or_refuse([&] { much = unpacks_to_much(path); });
  if (much) return;
  accept_or_refuse([&] { read_corpus({.patterns = {path}}); });
  accept_or_refuse([&] {
    read_corpus(
        {.patterns = {path}, .on_bad_document = OnBadDocument::kSkip, .max_document_bytes = 16});
  });
}

}  // namespace mpt::fuzz
