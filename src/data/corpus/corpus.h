// A stream of documents from text files, plain or compressed, or from standard input.
//
//   *.txt *.md     plain text; a blank line (empty, or only white space) ends a document, or a
//                  document is a line or a file, as asked for; "\r\n" counts as "\n"
//   *.jsonl *.json one JSON object per line, as in C4; the document is its field `text_field`
//   *.parquet      one document per row, its column `text_field`
//   *.gz *.zst     of the first two (recognised by content)
//
// Documents longer than max_document_bytes are cut into several, at white space if possible, so
// memory stays bounded whatever the files contain. Documents without text are skipped and counted.
// Every document returned is valid UTF-8; `on_bad_document` decides about invalid UTF-8, lines that
// are not JSON and lines without the field. Damaged compressed data and damaged Parquet files are
// always errors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/enum_names.h"
#include "core/io/hash.h"
#include "data/corpus/document_reader.h"

namespace mpt {

enum class OnBadDocument { kError, kSkip };
template <>
struct EnumNames<OnBadDocument> {
  static constexpr std::array<std::string_view, 2> kNames{"error", "skip"};
};

inline constexpr const char* kTextField = "text";

struct CorpusOptions {
  std::vector<std::string> patterns{};      // files and globs, or "-" alone: standard input
  std::optional<std::string> text_field{};  // of JSON objects and Parquet tables; none: kTextField
  OnBadDocument on_bad_document = OnBadDocument::kError;
  int64_t max_document_bytes = int64_t{1} << 20;
  std::optional<TextKind> as{};            // what all inputs hold; none: by name
  std::optional<DocumentUnit> document{};  // of plain text; none: a paragraph
};

// By file name, ignoring a final ".gz" or ".zst". Throws Error for any other name.
TextKind text_kind_of(const std::string& path);

struct CorpusStats {
  int64_t documents = 0;   // returned
  int64_t text_bytes = 0;  // in them
  int64_t empty = 0;       // without text, skipped
  int64_t bad = 0;         // unreadable, skipped (on_bad_document = skip)
  int64_t cuts = 0;        // places where a long document was cut in two

  bool operator==(const CorpusStats&) const = default;
};

// How far a corpus was read: enough to go on behind it in the same files.
struct CorpusPosition {
  int64_t file = 0;       // the number of the file; that of files at the end
  int64_t documents = 0;  // returned of that file
  std::string hash{};     // of their text
  CorpusStats stats{};    // of all files up to here

  bool operator==(const CorpusPosition&) const = default;
};

class CorpusReader {
 public:
  // Expands the patterns and checks that every file exists and is of a known kind.
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();

  // False at the end.
  bool next(std::string& text);

  [[nodiscard]] CorpusPosition position() const;
  // Goes on behind a position of a reader with the same options: earlier files are not opened, and
  // the documents read of its file are read again and dropped. Throws Error if these are others
  // than they were. To be called before next().
  void skip_to(const CorpusPosition& position);

  [[nodiscard]] const CorpusStats& stats() const { return stats_; }
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
  // Whether one of them is plain text, by its name.
  [[nodiscard]] bool has_plain_text() const { return has_plain_text_; }
  // Bytes of the files on disk, for progress; 0 for standard input.
  [[nodiscard]] int64_t input_bytes() const { return input_bytes_; }
  [[nodiscard]] int64_t input_bytes_read() const;

 private:
  DocumentReader::Found read(std::string& text);
  bool is_utf8_or_error(std::string_view text) const;
  bool open_next_file();

  CorpusOptions options_;
  std::vector<std::string> files_;
  bool has_plain_text_ = false;
  size_t next_file_ = 0;
  int64_t input_bytes_ = 0;
  int64_t finished_bytes_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  int64_t documents_of_file_ = 0;
  std::optional<Hasher> hash_of_file_;  // of the text of its documents
  CorpusStats stats_;
};

}  // namespace mpt
