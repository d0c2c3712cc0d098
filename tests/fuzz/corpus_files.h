// Reads a corpus file to its end, like `mpretrain tokenize`.
#pragma once

#include <vector>

#include "core/text/utf8.h"
#include "fuzz/input_directory.h"
#include "text/corpus/corpus.h"
#include "text/corpus/input_stream.h"

namespace mpt::fuzz {

// Small files may unpack to very large ones, which takes time but no memory (SECURITY.md).
inline bool unpacks_to_much(const std::string& path) {
  constexpr size_t kMuch = 1 << 20;
  InputStream stream(path);
  std::vector<char> buffer(1 << 16);
  size_t unpacked = 0;
  while (const size_t count = stream.read(buffer))
    if ((unpacked += count) > kMuch) return true;
  return false;
}

// Every document must be UTF-8 with text, and no longer than requested. Pages of Parquet files may
// become very large too: the rest of those is not read.
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

// Reads once with defaults, once with short documents and skipping bad ones; files that unpack to
// too much are only unpacked, and not to the end.
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
