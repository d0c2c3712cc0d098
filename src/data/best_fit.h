// Best-fit packing: fills rows with whole documents so that few are cut and little is padding.
//
// Documents are taken in stream order. A document of at most T + 1 tokens is one piece; a longer
// one is cut into pieces of T + 1 tokens that overlap by one token, so that every token but the
// document's first is a target exactly once. A piece goes into the open row with the least room
// that still holds it (ties: the oldest), or opens a new row of T + 1 tokens. At most kOpenRows
// rows are open; opening one more closes the fullest. Tokens before the first document count as a
// document.
//
// The plan is a function of the document indices and T only. It takes 4 bytes per piece, 8 per row
// and 16 per cut document, plus 4 per piece during construction.
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
  // The stream's documents must be open. Throws Error if they yield 2^32 pieces or more.
  BestFitPlan(const TokenStream& stream, int64_t seq_len);

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(first_of_row_.size()) - 1; }
  // Piece numbers of a row in stream order; at least one.
  [[nodiscard]] std::span<const uint32_t> pieces_of(int64_t row) const;
  // Tokens of a piece: 1 to T + 1. `stream` is the one passed to the constructor.
  [[nodiscard]] TokenRange range_of(const TokenStream& stream, uint32_t piece) const;

  [[nodiscard]] int64_t documents() const { return documents_; }
  [[nodiscard]] int64_t cut_documents() const { return static_cast<int64_t>(cuts_.size()); }
  // Positions left empty, out of T + 1 per row.
  [[nodiscard]] int64_t padding() const { return padding_; }

 private:
  // A document cut into several pieces.
  struct Cut {
    int64_t document, first_piece;
  };

  [[nodiscard]] TokenRange document(const TokenStream& stream, int64_t number) const;
  // Returns the row of every piece. Records the cut documents, the padding and the number of rows.
  std::vector<uint32_t> rows_of_pieces(const TokenStream& stream);
  void sort_pieces(std::span<const uint32_t> row_of_piece);

  int64_t seq_len_ = 0, documents_ = 0, padding_ = 0;
  bool headless_ = false;  // the stream starts in the middle of a document
  std::vector<Cut> cuts_;
  std::vector<int64_t> first_of_row_{0};  // offset into pieces_ for each row, then the total
  std::vector<uint32_t> pieces_;          // sorted by row
};

}  // namespace mpt
