#include "text/corpus/document_reader.h"

#include "core/text/utf8.h"

namespace mpt {

DocumentReader::Found TextCutter::give(std::string& text) {
  if (rest_.size() > limit_) {
    const std::string_view piece = rest_.substr(0, cut_position(rest_, limit_));
    rest_.remove_prefix(piece.size());
    open_ = !rest_.empty();
    text = without_trailing_space(piece);
    return DocumentReader::Found::kPiece;
  }
  open_ = false;
  text = rest_;
  return DocumentReader::Found::kDocument;
}

}  // namespace mpt
