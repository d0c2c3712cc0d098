// Reads a corpus file to its end, as `mpretrain tokenize` does.
#pragma once

#include "core/text.h"
#include "data/corpus/corpus.h"
#include "fuzz/input_directory.h"

namespace mpt::fuzz {

// Every document must be UTF-8 with text, and no longer than was asked for. Small files may unpack
// to very much, which takes time and no memory (SECURITY.md): the rest of those is not read.
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

// Once as by default, once with short documents and past bad ones.
inline void read_corpus_file(const std::string& path) {
  accept_or_refuse([&] { read_corpus({.patterns = {path}}); });
  accept_or_refuse([&] {
    read_corpus(
        {.patterns = {path}, .on_bad_document = OnBadDocument::kSkip, .max_document_bytes = 16});
  });
}

}  // namespace mpt::fuzz
