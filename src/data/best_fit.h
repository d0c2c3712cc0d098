// Best-fit packing: rows filled with whole documents, so that few are cut and little is padding.
//
// Documents are taken in the order of the stream. One of at most T + 1 tokens is a piece; a longer
// one is cut into pieces of T + 1 tokens that share their ends, so that every token of a document
// but its first is a target once. A piece goes into the open row with the least room that holds it,
// the oldest of equals, or opens a row of T + 1 tokens. At most kOpenRows rows are open: one more
// closes the fullest. Tokens before the first document are a document.
//
// The plan is a function of the document indices and T alone. It takes 4 bytes a piece, 8 a row and
// 16 a document that was cut, and 4 a piece more while it is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_stream.h"

namespace mpt {

class BestFitPlan {
 public:
  static constexpr int64_t kOpenRows = 1024;

  BestFitPlan() = default;
  // The stream's documents must be open. Throws Error if they make 2^32 pieces or more.
  BestFitPlan(const TokenStream& stream, int64_t seq_len);

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(first_of_row_.size()) - 1; }
  // The numbers of a row's pieces, in the order of the stream; at least one.
  [[nodiscard]] std::span<const uint32_t> pieces_of(int64_t row) const;
  // The tokens of a piece: 1 to T + 1. `stream` is that of the constructor.
  [[nodiscard]] TokenRange range_of(const TokenStream& stream, uint32_t piece) const;

  [[nodiscard]] int64_t documents() const { return documents_; }
  [[nodiscard]] int64_t cut_documents() const { return static_cast<int64_t>(cuts_.size()); }
  // Of the T + 1 tokens of every row, those left empty.
  [[nodiscard]] int64_t padding() const { return padding_; }

 private:
  // A document of several pieces.
  struct Cut {
    int64_t document, first_piece;
  };

  [[nodiscard]] TokenRange document(const TokenStream& stream, int64_t number) const;
  // Of every piece its row. Notes the number of rows, and what is cut and left empty.
  std::vector<uint32_t> rows_of_pieces(const TokenStream& stream);
  void sort_pieces(std::span<const uint32_t> row_of_piece);

  int64_t seq_len_ = 0, documents_ = 0, padding_ = 0;
  bool headless_ = false;  // the first document has no beginning in the stream
  std::vector<Cut> cuts_;
  std::vector<int64_t> first_of_row_{0};  // in pieces_, then their number
  std::vector<uint32_t> pieces_;          // sorted by row
};

}  // namespace mpt
