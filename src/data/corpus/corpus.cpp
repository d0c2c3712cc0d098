#include "data/corpus/corpus.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/text.h"

namespace mpt {
namespace {

using nlohmann::json;
using Piece = LineReader::Piece;

constexpr size_t kMaxJsonLineBytes = size_t{64} << 20;

// The first `limit` bytes of a longer text, or fewer.
std::string_view first_piece(std::string_view text, size_t limit) {
  return text.substr(0, cut_position(text, limit));
}

class PlainTextReader final : public DocumentReader {
 public:
  PlainTextReader(const std::string& path, const DocumentOptions& options)
      : lines_(path), limit_(static_cast<size_t>(options.max_document_bytes)) {}

  Found next(std::string& text) override {
    for (;;) {
      if (pending_.size() > limit_) return give_piece(text);
      if (pending_.empty()) pending_line_ = lines_.line_number();
      const Piece piece = lines_.next_piece(pending_, limit_ + 1 - pending_.size());
      if (piece == Piece::kPartial) continue;
      if (piece == Piece::kEnd) return pending_.empty() ? Found::kEnd : give_document(text);
      if (!is_blank(std::string_view(pending_).substr(line_begin_))) {
        pending_ += '\n';
        line_begin_ = pending_.size();
        continue;
      }
      pending_.resize(line_begin_);
      if (!pending_.empty()) return give_document(text);
    }
  }
  int64_t first_line() const override { return first_line_; }
  const InputStream& stream() const override { return lines_.stream(); }

 private:
  Found give_document(std::string& text) {
    first_line_ = pending_line_;
    text = without_trailing_space(pending_);
    pending_.clear();
    line_begin_ = 0;
    return Found::kDocument;
  }
  Found give_piece(std::string& text) {
    first_line_ = pending_line_;
    const std::string_view piece = first_piece(pending_, limit_);
    pending_line_ += std::count(piece.begin(), piece.end(), '\n');
    text = without_trailing_space(piece);
    line_begin_ -= std::min(line_begin_, piece.size());
    pending_.erase(0, piece.size());
    return Found::kPiece;
  }

  LineReader lines_;
  size_t limit_;
  std::string pending_;    // complete lines of the document, each with its '\n', and a partial one
  size_t line_begin_ = 0;  // start of the partial line in pending_
  int64_t pending_line_ = 1;  // the line where pending_ begins
  int64_t first_line_ = 1;
};

// Receives the events of a JSON parser and keeps the text of one field of the outermost object, so
// that the rest of a line takes no memory, however it is nested.
class FieldFinder : public nlohmann::json_sax<json> {
 public:
  explicit FieldFinder(std::string_view field) : field_(field) {}

  [[nodiscard]] const std::string& problem() const { return problem_; }      // of the parser
  [[nodiscard]] std::string_view kind() const { return kind_; }              // of the whole
  [[nodiscard]] std::string_view field_kind() const { return field_kind_; }  // empty: no field
  std::string take_text() { return std::move(text_); }  // of the last field of that name

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
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    problem_ = reason.what();
    return false;
  }

 protected:
  [[nodiscard]] int64_t depth() const { return depth_; }  // of open objects and lists

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
  std::string problem_, text_;
  int64_t depth_ = 0;
  bool at_field_ = false;  // whether the key before the present value is the field's
};

// The keys of the outermost object, sorted: for a message, so not all of very many.
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
      : lines_(path),
        field_(options.text_field),
        limit_(static_cast<size_t>(options.max_document_bytes)) {}

  Found next(std::string& text) override {
    if (given_ == pending_.size() && !read_document()) return Found::kEnd;
    const std::string_view rest = std::string_view(pending_).substr(given_);
    if (rest.size() > limit_) {
      const std::string_view piece = first_piece(rest, limit_);
      given_ += piece.size();
      text = without_trailing_space(piece);
      return Found::kPiece;
    }
    given_ = pending_.size();
    text = rest;
    return Found::kDocument;
  }
  int64_t first_line() const override { return first_line_; }
  const InputStream& stream() const override { return lines_.stream(); }

 private:
  bool read_document() {
    do {
      if (!read_line()) return false;
    } while (is_blank(line_));
    pending_ = text_of_line();
    given_ = 0;
    if (pending_.empty()) pending_ = " ";  // blank, so that the corpus counts an empty document
    return true;
  }

  bool read_line() {
    line_.clear();
    first_line_ = lines_.line_number();
    const Piece piece = lines_.next_piece(line_, kMaxJsonLineBytes);
    if (piece != Piece::kPartial) return piece == Piece::kLine;
    do line_.clear();
    while (lines_.next_piece(line_, kMaxJsonLineBytes) == Piece::kPartial);
    throw bad("the line is longer than {} MiB", kMaxJsonLineBytes >> 20);
  }

  std::string text_of_line() const {
    FieldFinder found(field_);
    if (!json::sax_parse(line_, &found))
      throw bad("not a JSON object on one line: {}; {}", reason_of(found.problem()), wanted());
    if (found.kind() != "object")
      throw bad("expected a JSON object, found {}; {}", found.kind(), wanted());
    if (found.field_kind().empty())
      throw bad("no field '{}'; the object has: {}; name the field of the text with --text-field",
                field_, keys_of_line());
    if (found.field_kind() != "string")
      throw bad("field '{}' is {}; expected a string", field_, found.field_kind());
    return found.take_text();
  }

  // The reason for a one-line document, from the JSON parser's message.
  static std::string reason_of(const std::string& what) {
    const std::string reason = library_message(what), place = "line 1, ";
    return reason.starts_with(place) ? reason.substr(place.size()) : reason;
  }

  // The expected layout, and how to convert another layout to it.
  std::string wanted() const {
    const std::string form =
        fmt::format("expected one object per line, {{\"{}\": \"...\"}}", field_);
    const size_t begin = line_.find_first_not_of(" \t\r");
    const std::string_view content =
        begin == std::string::npos ? "" : std::string_view(line_).substr(begin);
    if (content.starts_with('['))
      return form +
             fmt::format("; convert a list with: jq -c '.[]' {} > lines.jsonl", stream().path());
    if (without_trailing_space(content) == "{")
      return form + fmt::format("; put each object on one line with: jq -c . {} > lines.jsonl",
                                stream().path());
    return form + "; skip such lines with --on-bad-document skip";
  }

  std::string keys_of_line() const {
    KeyLister lister;
    json::sax_parse(line_, &lister);
    return lister.keys().empty() ? "no fields" : fmt::format("{}", fmt::join(lister.keys(), ", "));
  }

  template <class... Args>
  BadDocument bad(fmt::format_string<Args...> format, Args&&... args) const {
    return BadDocument(fmt::format("{}:{}: ", stream().path(), first_line_) +
                       fmt::format(format, std::forward<Args>(args)...));
  }

  LineReader lines_;
  std::string field_;
  size_t limit_;
  std::string line_;
  std::string pending_;  // the text of the line
  size_t given_ = 0;     // bytes of it returned already
  int64_t first_line_ = 1;
};

}  // namespace

TextKind text_kind_of(const std::string& path) {
  const std::string_view name =
      path.ends_with(".gz") ? std::string_view(path).substr(0, path.size() - 3) : path;
  if (name.ends_with(".txt")) return TextKind::kPlainText;
  if (name.ends_with(".jsonl") || name.ends_with(".json")) return TextKind::kJsonLines;
  throw error(
      "{}: unknown kind of text file; expected .txt, .jsonl or .json, optionally followed by .gz",
      path);
}

std::unique_ptr<DocumentReader> make_document_reader(const std::string& path,
                                                     const DocumentOptions& options) {
  if (text_kind_of(path) == TextKind::kPlainText)
    return std::make_unique<PlainTextReader>(path, options);
  return std::make_unique<JsonLinesReader>(path, options);
}

namespace {

int64_t size_of(const std::string& path) {
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

}  // namespace

CorpusReader::CorpusReader(CorpusOptions options)
    : options_(std::move(options)), files_(expand_patterns(options_.patterns)) {
  constexpr int64_t kLeast = 16;
  if (options_.max_document_bytes < kLeast)
    throw error("--max-document-bytes: max_document_bytes is {}; expected at least {}",
                options_.max_document_bytes, kLeast);
  for (const std::string& file : files_) {
    text_kind_of(file);
    input_bytes_ += size_of(file);
  }
}

CorpusReader::~CorpusReader() = default;

int64_t CorpusReader::input_bytes_read() const {
  return finished_bytes_ + (reader_ ? reader_->stream().file_bytes_read() : 0);
}

bool CorpusReader::open_next_file() {
  if (reader_) finished_bytes_ += reader_->stream().file_bytes_read();
  reader_.reset();
  if (next_file_ == files_.size()) return false;
  const std::string& file = files_[next_file_++];
  reader_ = make_document_reader(file, {options_.text_field, options_.max_document_bytes});
  return true;
}

void CorpusReader::check_utf8(std::string_view text) const {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return;
  const auto lines_before =
      std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(valid), '\n');
  throw BadDocument(
      fmt::format("{}:{}: not valid UTF-8 (byte 0x{:02x}); convert the file, or skip such "
                  "documents with --on-bad-document skip",
                  reader_->stream().path(), reader_->first_line() + lines_before,
                  static_cast<unsigned char>(text[valid])));
}

// The next usable text; empty if it is blank.
DocumentReader::Found CorpusReader::read(std::string& text) {
  using Found = DocumentReader::Found;
  for (;;) {
    try {
      const Found found = reader_ ? reader_->next(text) : Found::kEnd;
      if (found == Found::kEnd) {
        if (!open_next_file()) return Found::kEnd;
        continue;
      }
      check_utf8(text);
      if (is_blank(text)) text.clear();
      return found;
    } catch (const BadDocument& bad) {
      if (options_.on_bad_document == OnBadDocument::kError) throw;
      if (stats_.bad++ == 0) spdlog::warn("skipping bad documents, the first: {}", bad.what());
    }
  }
}

bool CorpusReader::next(std::string& text) {
  using Found = DocumentReader::Found;
  for (;;) {
    const Found found = read(text);
    if (found == Found::kEnd) return false;
    stats_.cuts += found == Found::kPiece ? 1 : 0;
    if (!text.empty()) break;
    ++stats_.empty;
  }
  ++stats_.documents;
  stats_.text_bytes += static_cast<int64_t>(text.size());
  return true;
}

}  // namespace mpt
