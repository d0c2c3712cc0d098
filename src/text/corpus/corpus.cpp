#include "text/corpus/corpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/file_patterns.h"
#include "core/io/file_system.h"
#include "core/text/utf8.h"
#include "text/corpus/parquet/metadata.h"
#include "text/corpus/raw_input.h"

namespace mpt {
namespace {

using Found = DocumentReader::Found;

std::string_view without_compression(std::string_view name) {
  for (const std::string_view ending : {".gz", ".zst"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

}  // namespace

TextKind text_kind_of(const std::string& path) {
  const std::string_view name = without_compression(path);
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  if (ends(".txt") || ends(".md")) return TextKind::kPlainText;
  if (ends(".jsonl") || ends(".json")) return TextKind::kJsonLines;
  if (!ends(".parquet"))
    throw error(
        "{}: unknown kind of text file; expected .txt, .md, .jsonl or .json, each optionally "
        "followed by .gz or .zst, or .parquet; say what it holds with --as",
        path);
  if (name != path)
    throw error("{}: Parquet files are read as they are; unpack it, they are packed inside", path);
  return TextKind::kParquet;
}

namespace {

std::vector<std::string> files_of(const CorpusOptions& options) {
  const auto& patterns = options.patterns;
  if (std::find(patterns.begin(), patterns.end(), kStandardInput) == patterns.end())
    return expand_patterns(patterns);
  if (patterns.size() > 1)
    throw error("'{}' is standard input, which must be the only input; found {} inputs",
                kStandardInput, patterns.size());
  if (!options.as) throw error("standard input: say what it holds with --as text or --as jsonl");
  if (options.as == TextKind::kParquet)
    throw error(
        "standard input: a Parquet file cannot be read from it, because it is not read "
        "from its beginning; name the file");
  return {std::string(kStandardInput)};
}

void check_options(const CorpusOptions& options) {
  constexpr int64_t kLeast = 16;
  if (options.max_document_bytes < kLeast)
    throw error("--max-document-bytes: max_document_bytes is {}; expected at least {}",
                options.max_document_bytes, kLeast);
}

int64_t size_of(const std::string& path) {
  return path == kStandardInput ? 0 : static_cast<int64_t>(std::filesystem::file_size(path));
}

// A Parquet file counts as one whatever kind its name suggests.
TextKind kind_of(const CorpusOptions& options, const std::string& file) {
  const TextKind named = options.as ? *options.as : text_kind_of(file);
  return !options.as && is_parquet_file(file) ? TextKind::kParquet : named;
}

// Rejects an option that applies to no input.
void check_kinds(const CorpusOptions& options, const std::vector<std::string>& files,
                 bool has_plain_text) {
  if (options.document && !has_plain_text)
    throw error("--document {}: says what a document of plain text is, but no input is plain text",
                name_of(*options.document));
  const auto has_fields = [&](const std::string& file) {
    return kind_of(options, file) != TextKind::kPlainText;
  };
  if (options.text_field && std::none_of(files.begin(), files.end(), has_fields))
    throw error(
        "--text-field {}: names a field of JSON objects or a column of Parquet tables, but "
        "all inputs are plain text",
        *options.text_field);
}

std::unique_ptr<DocumentReader> make_document_reader(const CorpusOptions& options,
                                                     const std::string& file) {
  const DocumentOptions how{.unit = options.document.value_or(DocumentUnit::kParagraph),
                            .text_field = options.text_field.value_or(kTextField),
                            .max_document_bytes = options.max_document_bytes};
  switch (kind_of(options, file)) {
    case TextKind::kPlainText:
      return make_plain_text_reader(file, how);
    case TextKind::kJsonLines:
      return make_json_lines_reader(file, how);
    case TextKind::kParquet:
      break;
  }
  return make_parquet_reader(file, how);
}

}  // namespace

CorpusReader::CorpusReader(CorpusOptions options)
    : options_(std::move(options)), files_(files_of(options_)) {
  check_options(options_);
  for (const std::string& file : files_) {
    has_plain_text_ |= kind_of(options_, file) == TextKind::kPlainText;
    input_bytes_ += size_of(file);
  }
  check_kinds(options_, files_, has_plain_text_);
}

CorpusReader::~CorpusReader() = default;

int64_t CorpusReader::input_bytes_read() const {
  return finished_bytes_ + (reader_ ? reader_->file_bytes_read() : 0);
}

bool CorpusReader::open_next_file() {
  if (reader_) finished_bytes_ += reader_->file_bytes_read();
  reader_.reset();
  documents_of_file_ = 0;
  hash_of_file_.emplace();
  if (next_file_ == files_.size()) return false;
  reader_ = make_document_reader(options_, files_[next_file_++]);
  return true;
}

// Only counts bad documents after the first: an exception with its message takes microseconds, and
// a byte of a Parquet file can be 64 rows.
bool CorpusReader::is_utf8_or_error(std::string_view text) const {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return true;
  if (options_.on_bad_document == OnBadDocument::kSkip && stats_.bad > 0) return false;
  throw BadDocument(
      fmt::format("{}: not valid UTF-8 (byte 0x{:02x}); convert the file, or skip such "
                  "documents with --on-bad-document skip",
                  reader_->place(text.substr(0, valid)), static_cast<unsigned char>(text[valid])));
}

// Reads the next usable text; leaves it empty if blank.
Found CorpusReader::read(std::string& text) {
  for (;;) {
    try {
      const Found found = reader_ ? reader_->next(text) : Found::kEnd;
      if (found == Found::kEnd) {
        if (!open_next_file()) return Found::kEnd;
        continue;
      }
      if (!is_utf8_or_error(text)) {
        ++stats_.bad;
        continue;
      }
      if (is_blank(text)) text.clear();
      return found;
    } catch (const BadDocument& bad) {
      if (options_.on_bad_document == OnBadDocument::kError) throw;
      if (stats_.bad++ == 0) spdlog::warn("skipping bad documents, the first: {}", bad.what());
    }
  }
}

bool CorpusReader::next(std::string& text) {
  for (;;) {
    const Found found = read(text);
    if (found == Found::kEnd) return false;
    stats_.cuts += found == Found::kPiece ? 1 : 0;
    if (!text.empty()) break;
    ++stats_.empty;
  }
  ++stats_.documents;
  stats_.text_bytes += static_cast<int64_t>(text.size());
  ++documents_of_file_;
  const auto length = static_cast<int64_t>(text.size());
  hash_of_file_->update(std::as_bytes(std::span(&length, 1)));
  hash_of_file_->update(bytes_of(text));
  return true;
}

CorpusPosition CorpusReader::position() const {
  const size_t open = next_file_ - (reader_ ? 1 : 0);
  return {.file = static_cast<int64_t>(open),
          .documents = documents_of_file_,
          .hash = hash_of_file_ ? hash_of_file_->hex() : "",
          .stats = stats_};
}

void CorpusReader::skip_to(const CorpusPosition& position) {
  check(next_file_ == 0 && position.file <= std::ssize(files_), "skip_to({}) of {} files at {}",
        position.file, files_.size(), next_file_);
  for (; std::cmp_less(next_file_, position.file); ++next_file_)
    finished_bytes_ += size_of(files_[next_file_]);
  if (!open_next_file()) {
    stats_ = position.stats;
    return;
  }
  std::string text;
  const size_t after = next_file_;
  bool same = true;
  while (same && documents_of_file_ < position.documents) same = next(text) && next_file_ == after;
  if (!same || hash_of_file_->hex() != position.hash)
    throw error("{}: its first {} documents are not those that were read before",
                files_[after - 1] == kStandardInput ? "standard input" : files_[after - 1],
                position.documents);
  stats_ = position.stats;
}

}  // namespace mpt
