// Documents of JSON lines: one object per line, its text in one field.
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "core/json/json_scan.h"
#include "core/text/utf8.h"
#include "text/corpus/document_reader.h"
#include "text/corpus/input_stream.h"

namespace mpt {
namespace {

using LinePiece = LineReader::Piece;

constexpr size_t kMaxJsonLineBytes = size_t{64} << 20;

// Receives the events of a JSON parser and keeps only the text of one top-level field, so that the
// rest of a line takes no memory, however deeply nested.
class FieldFinder : public JsonSax {
 public:
  explicit FieldFinder(std::string_view field) : field_(field) {}

  [[nodiscard]] std::string_view kind() const { return kind_; }              // whole line
  [[nodiscard]] std::string_view field_kind() const { return field_kind_; }  // empty: no field
  std::string take_text() { return std::move(text_); }  // text of the last such field

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("boolean"); }
  bool number_integer(number_integer_t) override { return value("number"); }
  bool number_unsigned(number_unsigned_t) override { return value("number"); }
  bool number_float(number_float_t, const string_t&) override { return value("number"); }
  bool string(string_t& text) override {
    value("string");
    if (is_field()) text_ = std::move(text);
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open("object"); }
  bool start_array(std::size_t) override { return open("array"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (depth_ == 1) at_field_ = key == field_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 protected:
  [[nodiscard]] int64_t depth() const { return depth_; }  // open objects and lists

 private:
  [[nodiscard]] bool is_field() const { return depth_ == 1 && at_field_; }
  bool value(std::string_view kind) {
    if (depth_ == 0) kind_ = kind;
    if (is_field()) field_kind_ = kind;
    return true;
  }
  bool open(std::string_view kind) {
    value(kind);
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::string_view field_, kind_, field_kind_;
  std::string text_;
  int64_t depth_ = 0;
  bool at_field_ = false;  // whether the key of the current value is the field's
};

// Lists the top-level keys in sorted order, for a message; stops at a limit.
class KeyLister : public FieldFinder {
 public:
  KeyLister() : FieldFinder("") {}

  bool key(string_t& key) override {
    constexpr size_t kMostKeys = 50;
    if (depth() == 1 && keys_.size() < kMostKeys) keys_.insert(key);
    return true;
  }
  [[nodiscard]] const std::set<std::string>& keys() const { return keys_; }

 private:
  std::set<std::string> keys_;
};

class JsonLinesReader final : public DocumentReader {
 public:
  JsonLinesReader(const std::string& path, const DocumentOptions& options)
      : lines_(path), field_(options.text_field), pieces_(options.max_document_bytes) {}

  Found next(std::string& text) override {
    if (!pieces_.open() && !read_document()) return Found::kEnd;
    return pieces_.give(text);
  }
  std::string place(std::string_view before) const override {
    return lines_.place(first_line_, before);
  }
  int64_t file_bytes_read() const override { return lines_.stream().file_bytes_read(); }

 private:
  bool read_document() {
    do {
      if (!read_line()) return false;
    } while (is_blank(line_));
    document_ = text_of_line();
    pieces_.begin(document_);
    return true;
  }

  bool read_line() {
    line_.clear();
    first_line_ = lines_.line_number();
    const LinePiece piece = lines_.next_piece(line_, kMaxJsonLineBytes);
    if (piece != LinePiece::kPartial) return piece == LinePiece::kLine;
    do line_.clear();
    while (lines_.next_piece(line_, kMaxJsonLineBytes) == LinePiece::kPartial);
    throw bad("the line is longer than {} MiB, the most that is read of a JSON object",
              kMaxJsonLineBytes >> 20);
  }

  std::string text_of_line() const {
    FieldFinder found(field_);
    try {
      scan_json(line_, found);
    } catch (const Error& defect) {
      throw bad("not a JSON object on one line: {}; {}", defect.what(), wanted());
    }
    if (found.kind() != "object")
      throw bad("expected a JSON object, found {}; {}", found.kind(), wanted());
    if (found.field_kind().empty())
      throw bad("no field '{}'; the object has: {}; name the field of the text with --text-field",
                field_, keys_of_line());
    if (found.field_kind() != "string")
      throw bad("field '{}' is {}; expected a string", field_, found.field_kind());
    std::string text = found.take_text();
    if (const std::string defect = defect_of_text(text); !defect.empty())
      throw bad("field '{}' {}; skip such documents with --on-bad-document skip", field_, defect);
    return text;
  }

  // Describes the expected layout, and how to convert other layouts to it.
  std::string wanted() const {
    const std::string form =
        fmt::format("expected one object per line, {{\"{}\": \"...\"}}", field_);
    const size_t begin = line_.find_first_not_of(" \t\r");
    const std::string_view content =
        begin == std::string::npos ? "" : std::string_view(line_).substr(begin);
    if (content.starts_with('['))
      return form + fmt::format("; convert a list with: jq -c '.[]' {} > lines.jsonl",
                                lines_.stream().path());
    if (without_trailing_space(content) == "{")
      return form + fmt::format("; put each object on one line with: jq -c . {} > lines.jsonl",
                                lines_.stream().path());
    return form + "; skip such lines with --on-bad-document skip";
  }

  std::string keys_of_line() const {
    KeyLister lister;
    scan_json(line_, lister);
    return lister.keys().empty() ? "no fields" : fmt::format("{}", fmt::join(lister.keys(), ", "));
  }

  template <class... Args>
  BadDocument bad(fmt::format_string<Args...> format, Args&&... args) const {
    return BadDocument(fmt::format("{}:{}: ", lines_.stream().path(), first_line_) +
                       fmt::format(format, std::forward<Args>(args)...));
  }

  LineReader lines_;
  std::string field_;
  std::string line_;
  std::string document_;  // text of the line
  TextCutter pieces_;     // pieces of document_
  int64_t first_line_ = 1;
};

}  // namespace

std::unique_ptr<DocumentReader> make_json_lines_reader(const std::string& path,
                                                       const DocumentOptions& options) {
  return std::make_unique<JsonLinesReader>(path, options);
}

}  // namespace mpt
