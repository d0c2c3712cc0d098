// A stream of documents from text files: plain text, JSON lines, and gzip of both.
//
//   *.txt          a blank line (empty, or only white space) ends a document; "\r\n" counts as "\n"
//   *.jsonl *.json one JSON object per line, as in C4; the document is its field `text_field`
//   *.gz           of the above (recognised by content)
//
// Documents longer than max_document_bytes are cut into several, at white space if possible, so
// memory stays bounded whatever the files contain. Documents without text are skipped and counted.
// Every document returned is valid UTF-8; `on_bad_document` decides about invalid UTF-8, lines that
// are not JSON and lines without the field. Damaged gzip data is always an error.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/enum_names.h"
#include "data/corpus/input_stream.h"

namespace mpt {

// Readers for the documents of one file, by kind of file.

// An unusable document, as opposed to an unusable file: reading can continue after it.
class BadDocument : public Error {
 public:
  using Error::Error;
};

class DocumentReader {
 public:
  enum class Found {
    kDocument,
    kPiece,  // part of a document longer than the limit; the next call continues it
    kEnd,
  };

  virtual ~DocumentReader() = default;
  // `text` may be blank and need not be UTF-8. Throws BadDocument, naming file and line.
  virtual Found next(std::string& text) = 0;
  // The line, from 1, where the text of the last next() begins.
  [[nodiscard]] virtual int64_t first_line() const = 0;
  [[nodiscard]] virtual const InputStream& stream() const = 0;
};

struct DocumentOptions {
  std::string text_field;      // of JSON objects
  int64_t max_document_bytes;  // longer ones are cut
};

enum class TextKind { kPlainText, kJsonLines };

// By file name, ignoring a final ".gz". Throws Error for any other name.
TextKind text_kind_of(const std::string& path);

std::unique_ptr<DocumentReader> make_document_reader(const std::string& path,
                                                     const DocumentOptions& options);

enum class OnBadDocument { kError, kSkip };
template <>
struct EnumNames<OnBadDocument> {
  static constexpr std::array<std::string_view, 2> kNames{"error", "skip"};
};

struct CorpusOptions {
  std::vector<std::string> patterns{};  // files and globs
  std::string text_field = "text";
  OnBadDocument on_bad_document = OnBadDocument::kError;
  int64_t max_document_bytes = int64_t{1} << 20;
};

struct CorpusStats {
  int64_t documents = 0;   // returned
  int64_t text_bytes = 0;  // in them
  int64_t empty = 0;       // without text, skipped
  int64_t bad = 0;         // unreadable, skipped (on_bad_document = skip)
  int64_t cuts = 0;        // places where a long document was cut in two
};

class CorpusReader {
 public:
  // Expands the patterns and checks that every file exists and is of a known kind.
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();

  // False at the end.
  bool next(std::string& text);

  [[nodiscard]] const CorpusStats& stats() const { return stats_; }
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
  // Bytes of the files on disk, for progress.
  [[nodiscard]] int64_t input_bytes() const { return input_bytes_; }
  [[nodiscard]] int64_t input_bytes_read() const;

 private:
  DocumentReader::Found read(std::string& text);
  void check_utf8(std::string_view text) const;
  bool open_next_file();

  CorpusOptions options_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  int64_t input_bytes_ = 0;
  int64_t finished_bytes_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  CorpusStats stats_;
};

}  // namespace mpt
