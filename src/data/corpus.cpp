#include "data/corpus.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/utf8.h"
#include "data/file_list.h"

namespace mpt {
namespace {

int64_t size_of(const std::string& path) { return static_cast<int64_t>(std::filesystem::file_size(path)); }

}  // namespace

CorpusReader::CorpusReader(CorpusOptions options)
    : options_(std::move(options)), files_(expand_patterns(options_.patterns)) {
  constexpr int64_t kLeast = 16;
  if (options_.max_document_bytes < kLeast)
    throw error("--max-document-bytes: max_document_bytes is {}; at least {} are needed",
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
  const auto lines_before = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(valid), '\n');
  throw BadDocument(fmt::format(
      "{}:{}: not valid UTF-8 (byte 0x{:02x}); convert the file, or leave such documents out with "
      "--on-bad-document skip",
      reader_->stream().path(), reader_->first_line() + lines_before,
      static_cast<unsigned char>(text[valid])));
}

// The next text that can be used; empty if it is blank.
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
