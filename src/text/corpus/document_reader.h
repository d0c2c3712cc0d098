// Readers for the documents of a single input, one per kind of text.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/enum_names.h"

namespace mpt {

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
  // Location ("a.txt:17") just after the prefix `before` of the last text returned.
  [[nodiscard]] virtual std::string place(std::string_view before) const = 0;
  // Bytes read from the file itself, for progress.
  [[nodiscard]] virtual int64_t file_bytes_read() const = 0;
};

enum class TextKind { kPlainText, kJsonLines, kParquet };
template <>
struct EnumNames<TextKind> {
  static constexpr std::array<std::string_view, 3> kNames{"text", "jsonl", "parquet"};
};

// Unit that counts as one document of plain text.
enum class DocumentUnit { kParagraph, kFile, kLine };
template <>
struct EnumNames<DocumentUnit> {
  static constexpr std::array<std::string_view, 3> kNames{"paragraph", "file", "line"};
};

struct DocumentOptions {
  DocumentUnit unit;           // for plain text
  std::string text_field;      // for JSON objects and Parquet tables
  int64_t max_document_bytes;  // longer documents are split
};

std::unique_ptr<DocumentReader> make_plain_text_reader(const std::string& path,
                                                       const DocumentOptions& options);
std::unique_ptr<DocumentReader> make_json_lines_reader(const std::string& path,
                                                       const DocumentOptions& options);
std::unique_ptr<DocumentReader> make_parquet_reader(const std::string& path,
                                                    const DocumentOptions& options);

// Returns a text in pieces of at most `limit` bytes, cut at white space if possible.
class TextCutter {
 public:
  explicit TextCutter(int64_t limit) : limit_(static_cast<size_t>(limit)) {}

  // Sets the next text, which must stay alive until the last piece is returned.
  void begin(std::string_view text) { rest_ = text, open_ = true; }
  // Whether any text is left.
  [[nodiscard]] bool open() const { return open_; }
  DocumentReader::Found give(std::string& text);

 private:
  size_t limit_;
  std::string_view rest_;
  bool open_ = false;
};

}  // namespace mpt
