// Reads a stream of documents from text files, plain or compressed, or from standard input.
//
//   *.txt *.md     plain text; a blank line (empty or only white space) ends a document, or each
//                  line or file is one, depending on DocumentUnit; "\r\n" counts as "\n"
//   *.jsonl *.json one JSON object per line, as in C4; its field `text_field` is the document
//   *.parquet      one document per row, in column `text_field`
//   *.gz *.zst     either of the first two, compressed (recognised by content)
//
// Documents longer than max_document_bytes are split, at white space if possible, so memory stays
// bounded whatever the files contain. Documents without text are skipped and counted. Every
// document returned is valid UTF-8; `on_bad_document` governs invalid UTF-8, lines that are not
// JSON and lines without the field. Corrupt compressed data and corrupt Parquet files are always
// errors.
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
#include "text/corpus/document_reader.h"

namespace mpt {

enum class OnBadDocument { kError, kSkip };
template <>
struct EnumNames<OnBadDocument> {
  static constexpr std::array<std::string_view, 2> kNames{"error", "skip"};
};

inline constexpr const char* kTextField = "text";

struct CorpusOptions {
  std::vector<std::string> patterns{};      // files and globs, or just "-": standard input
  std::optional<std::string> text_field{};  // in JSON objects and Parquet tables; unset: kTextField
  OnBadDocument on_bad_document = OnBadDocument::kError;
  int64_t max_document_bytes = int64_t{1} << 20;
  std::optional<TextKind> as{};            // kind of all inputs; unset: by file name
  std::optional<DocumentUnit> document{};  // for plain text; unset: a paragraph
};

// Decides by file name, ignoring a final ".gz" or ".zst". Throws Error for any other name.
TextKind text_kind_of(const std::string& path);

struct CorpusStats {
  int64_t documents = 0;   // returned
  int64_t text_bytes = 0;  // in them
  int64_t empty = 0;       // skipped: no text
  int64_t bad = 0;         // skipped: unreadable (on_bad_document = skip)
  int64_t cuts = 0;        // number of splits of long documents

  bool operator==(const CorpusStats&) const = default;
};

// Read position in a corpus; enough to resume after it in the same files.
struct CorpusPosition {
  int64_t file = 0;       // index of the file; the number of files at the end
  int64_t documents = 0;  // returned from that file
  std::string hash{};     // hash of their text
  CorpusStats stats{};    // over all files so far

  bool operator==(const CorpusPosition&) const = default;
};

class CorpusReader {
 public:
  // Expands the patterns and checks that every file exists and has a known kind.
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();

  // Returns false at the end.
  bool next(std::string& text);

  [[nodiscard]] CorpusPosition position() const;
  // Resumes after a position saved by a reader with the same options: does not open earlier files;
  // rereads and drops the documents already read from its file. Throws Error if these have changed.
  // Call before next().
  void skip_to(const CorpusPosition& position);

  [[nodiscard]] const CorpusStats& stats() const { return stats_; }
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
  // Whether any file is plain text, judging by its name.
  [[nodiscard]] bool has_plain_text() const { return has_plain_text_; }
  // Total size of the files on disk, for progress; 0 for standard input.
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
  std::optional<Hasher> hash_of_file_;  // hash of the text of its documents so far
  CorpusStats stats_;
};

}  // namespace mpt
