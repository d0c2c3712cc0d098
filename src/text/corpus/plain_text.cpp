// Documents of plain text: paragraphs, lines or whole files.
#include <algorithm>
#include <string>
#include <string_view>

#include "core/text/utf8.h"
#include "text/corpus/document_reader.h"
#include "text/corpus/input_stream.h"

namespace mpt {
namespace {

using LinePiece = LineReader::Piece;

class PlainTextReader final : public DocumentReader {
 public:
  PlainTextReader(const std::string& path, const DocumentOptions& options)
      : lines_(path),
        unit_(options.unit),
        limit_(static_cast<size_t>(options.max_document_bytes)) {}

  Found next(std::string& text) override {
    for (;;) {
      if (pending_.size() > limit_) return give_piece(text);
      if (pending_.empty()) pending_line_ = lines_.line_number();
      const LinePiece piece = lines_.next_piece(pending_, limit_ + 1 - pending_.size());
      if (piece == LinePiece::kPartial) continue;
      if (piece == LinePiece::kEnd) return pending_.empty() ? Found::kEnd : give_document(text);
      if (unit_ == DocumentUnit::kLine) return give_document(text);
      if (unit_ == DocumentUnit::kFile ||
          !is_blank(std::string_view(pending_).substr(line_begin_))) {
        pending_ += '\n';
        line_begin_ = pending_.size();
        continue;
      }
      pending_.resize(line_begin_);
      if (!pending_.empty()) return give_document(text);
    }
  }
  std::string place(std::string_view before) const override {
    return lines_.place(first_line_, before);
  }
  int64_t file_bytes_read() const override { return lines_.stream().file_bytes_read(); }

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
    const auto piece = std::string_view(pending_).substr(0, cut_position(pending_, limit_));
    pending_line_ += std::count(piece.begin(), piece.end(), '\n');
    text = without_trailing_space(piece);
    line_begin_ -= std::min(line_begin_, piece.size());
    pending_.erase(0, piece.size());
    return Found::kPiece;
  }

  LineReader lines_;
  DocumentUnit unit_;
  size_t limit_;
  std::string pending_;    // complete lines of the document, each with its '\n', then a partial one
  size_t line_begin_ = 0;  // start of the partial line in pending_
  int64_t pending_line_ = 1;  // line where pending_ begins
  int64_t first_line_ = 1;
};

}  // namespace

std::unique_ptr<DocumentReader> make_plain_text_reader(const std::string& path,
                                                       const DocumentOptions& options) {
  return std::make_unique<PlainTextReader>(path, options);
}

}  // namespace mpt
