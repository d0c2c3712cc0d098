#include "data/corpus/corpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

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

// Moves up to `limit` bytes of a long text to `out`; returns the number of line ends moved.
int64_t cut_piece(std::string& pending, size_t limit, std::string& out) {
  const size_t length = cut_position(pending, limit);
  const std::string_view piece = std::string_view(pending).substr(0, length);
  const int64_t lines = std::count(piece.begin(), piece.end(), '\n');
  out = without_trailing_space(piece);
  pending.erase(0, length);
  return lines;
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
    const size_t before = pending_.size();
    pending_line_ += cut_piece(pending_, limit_, text);
    const size_t cut = before - pending_.size();
    line_begin_ = line_begin_ > cut ? line_begin_ - cut : 0;
    return Found::kPiece;
  }

  LineReader lines_;
  size_t limit_;
  std::string pending_;    // complete lines of the document, each with its '\n', and a partial one
  size_t line_begin_ = 0;  // start of the partial line in pending_
  int64_t pending_line_ = 1;  // the line where pending_ begins
  int64_t first_line_ = 1;
};

class JsonLinesReader final : public DocumentReader {
 public:
  JsonLinesReader(const std::string& path, const DocumentOptions& options)
      : lines_(path),
        field_(options.text_field),
        limit_(static_cast<size_t>(options.max_document_bytes)) {}

  Found next(std::string& text) override {
    if (pending_.empty() && !read_document()) return Found::kEnd;
    if (pending_.size() > limit_) {
      cut_piece(pending_, limit_, text);
      return Found::kPiece;
    }
    text = std::exchange(pending_, {});
    return Found::kDocument;
  }
  int64_t first_line() const override { return first_line_; }
  const InputStream& stream() const override { return lines_.stream(); }

 private:
  bool read_document() {
    do {
      if (!read_line()) return false;
    } while (is_blank(line_));
    pending_ = text_of(parsed());
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

  json parsed() const {
    try {
      return json::parse(line_);
    } catch (const json::exception& failure) {
      throw bad("not a JSON object on one line: {}; {}", reason_of(failure.what()), wanted());
    }
  }

  // The reason for a one-line document, from the JSON parser's message.
  static std::string reason_of(const char* what) {
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

  std::string text_of(json object) const {
    if (!object.is_object())
      throw bad("expected a JSON object, found {}; {}", object.type_name(), wanted());
    const auto field = object.find(field_);
    if (field == object.end())
      throw bad("no field '{}'; the object has: {}; name the field of the text with --text-field",
                field_, keys_of(object));
    if (!field->is_string())
      throw bad("field '{}' is {}; expected a string", field_, field->type_name());
    return std::move(field->get_ref<std::string&>());
  }

  static std::string keys_of(const json& object) {
    std::string keys;
    for (const auto& [key, unused] : object.items()) keys += (keys.empty() ? "" : ", ") + key;
    return keys.empty() ? "no fields" : keys;
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
  std::string pending_;  // text not returned yet
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
