#include "data/best_fit.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/check.h"

namespace mpt {
namespace {

// Rows that can still take pieces.
class OpenRows {
 public:
  explicit OpenRows(int64_t capacity) : capacity_(capacity) {}

  // Picks the row for a piece.
  int64_t place(int64_t tokens) {
    const auto found = open_.lower_bound({tokens, 0});
    if (found == open_.end()) return open(tokens);
    auto node = open_.extract(found);
    node.value().room -= tokens;
    room_ -= tokens;
    const int64_t row = node.value().row;
    if (node.value().room > 0) open_.insert(std::move(node));
    return row;
  }
  [[nodiscard]] int64_t rows() const { return rows_; }
  // Room left, summed over all rows.
  [[nodiscard]] int64_t room() const { return room_; }

 private:
  struct Row {
    int64_t room, row;
    auto operator<=>(const Row&) const = default;
  };

  int64_t open(int64_t tokens) {
    const int64_t row = rows_++, room = capacity_ - tokens;
    room_ += room;
    if (room > 0) open_.insert({room, row});
    if (std::ssize(open_) > BestFitPlan::kOpenRows) open_.erase(open_.begin());
    return row;
  }

  int64_t capacity_, rows_ = 0, room_ = 0;
  std::set<Row> open_;
};

// Pieces of an n-token document; adjacent pieces share a token.
int64_t pieces_of_document(int64_t n, int64_t seq_len) {
  return std::max<int64_t>((n - 1 + seq_len - 1) / seq_len, 1);
}

TokenRange piece_of_document(const TokenRange& document, int64_t number, int64_t seq_len) {
  const int64_t begin = document.begin + number * seq_len;
  return {begin, std::min(document.end, begin + seq_len + 1)};
}

}  // namespace

BestFitPlan::BestFitPlan(const TokenStream& stream, int64_t seq_len)
    : seq_len_(seq_len), headless_(stream.document_begin(0) > 0) {
  documents_ = stream.documents() + (headless_ ? 1 : 0);
  sort_pieces(rows_of_pieces(stream));
}

TokenRange BestFitPlan::document(const TokenStream& stream, int64_t number) const {
  if (!headless_) return stream.document(number);
  if (number > 0) return stream.document(number - 1);
  return {0, stream.document_begin(0)};
}

// Places pieces in stream order.
std::vector<uint32_t> BestFitPlan::rows_of_pieces(const TokenStream& stream) {
  std::vector<uint32_t> rows;
  rows.reserve(static_cast<size_t>(documents_));
  OpenRows open(seq_len_ + 1);
  for (int64_t number = 0; number < documents_; ++number) {
    const TokenRange tokens = document(stream, number);
    const int64_t pieces = pieces_of_document(tokens.end - tokens.begin, seq_len_);
    if (std::ssize(rows) + pieces > int64_t{UINT32_MAX})
      throw error("best-fit packing takes at most {} pieces of documents; document {} exceeds them",
                  UINT32_MAX, number);
    if (pieces > 1) cuts_.push_back({number, std::ssize(rows)});
    for (int64_t i = 0; i < pieces; ++i) {
      const TokenRange piece = piece_of_document(tokens, i, seq_len_);
      rows.push_back(static_cast<uint32_t>(open.place(piece.end - piece.begin)));
    }
  }
  first_of_row_.resize(static_cast<size_t>(open.rows()) + 1);
  padding_ = open.room();
  return rows;
}

// Counting sort; stable, so a row's pieces stay in stream order.
void BestFitPlan::sort_pieces(std::span<const uint32_t> row_of_piece) {
  for (const uint32_t row : row_of_piece) ++first_of_row_[row + size_t{1}];
  std::partial_sum(first_of_row_.begin(), first_of_row_.end(), first_of_row_.begin());
  pieces_.resize(row_of_piece.size());
  // Scattering advances every row's begin to its end, the next row's begin; rotate shifts it back.
  for (size_t piece = 0; piece < row_of_piece.size(); ++piece)
    pieces_[static_cast<size_t>(first_of_row_[row_of_piece[piece]]++)] =
        static_cast<uint32_t>(piece);
  std::rotate(first_of_row_.begin(), first_of_row_.end() - 1, first_of_row_.end());
  first_of_row_.front() = 0;
}

std::span<const uint32_t> BestFitPlan::pieces_of(int64_t row) const {
  check(row >= 0 && row < rows(), "row {} is outside the {} packed rows", row, rows());
  const auto first = static_cast<size_t>(first_of_row_[static_cast<size_t>(row)]),
             end = static_cast<size_t>(first_of_row_[static_cast<size_t>(row) + 1]);
  return std::span(pieces_).subspan(first, end - first);
}

TokenRange BestFitPlan::range_of(const TokenStream& stream, uint32_t piece) const {
  // The last cut document that begins at or before the piece.
  const auto after =
      std::upper_bound(cuts_.begin(), cuts_.end(), int64_t{piece},
                       [](int64_t number, const Cut& cut) { return number < cut.first_piece; });
  if (after == cuts_.begin()) return document(stream, piece);
  const Cut& cut = *(after - 1);
  const TokenRange tokens = document(stream, cut.document);
  const int64_t within = piece - cut.first_piece,
                pieces = pieces_of_document(tokens.end - tokens.begin, seq_len_);
  if (within < pieces) return piece_of_document(tokens, within, seq_len_);
  return document(stream, cut.document + 1 + within - pieces);
}

}  // namespace mpt
