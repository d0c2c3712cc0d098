#include "device/cpu/bf16_packing.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/check.h"
#include "device/cpu/gemm_elements.h"
#include "device/cpu/transpose_block.h"

namespace mpt {
namespace {

void require_exact(DType type) {
  check(is_exact_in_bf16(type), "{} is not exact in bf16", name_of(type));
}

// For an element whose value is exact in BF16.
template <class Element>
Bf16Pair bits_of(typename Element::Stored x) {
  return std::bit_cast<uint32_t>(Element::value(x)) >> 16;
}

template <class Element>
Bf16Pair pair_of(typename Element::Stored first, typename Element::Stored second) {
  return bits_of<Element>(first) | bits_of<Element>(second) << 16;
}

// Packs neighbours in one row of `terms` elements to `count` pairs, padding the last. `from` may be
// null if there are no terms.
template <class Element>
void pairs_of_neighbours(const typename Element::Stored* from, int64_t terms, int64_t count,
                         Bf16Pair* to) {
  const int64_t whole = std::clamp<int64_t>(terms / 2, 0, count);
  if constexpr (std::endian::native == std::endian::little &&
                std::is_same_v<typename Element::Stored, bf16>) {
    if (whole > 0) std::memcpy(to, from, size_t(whole) * sizeof(Bf16Pair));
  } else {
#pragma omp simd
    for (int64_t p = 0; p < whole; ++p) to[p] = pair_of<Element>(from[2 * p], from[2 * p + 1]);
  }
  for (int64_t p = whole; p < count; ++p) to[p] = 2 * p < terms ? bits_of<Element>(from[2 * p]) : 0;
}

// Packs vertical neighbours, in the rows of terms 2p and 2p + 1; missing terms are zeros.
template <class Element>
void pairs_of_rows(const Tensor& block, int64_t p, int64_t column, int64_t count, Bf16Pair* to) {
  const auto* first = row_of<Element>(block, std::min(2 * p, block.rows - 1)) + column;
  if (2 * p + 1 < block.rows) {
    const auto* second = row_of<Element>(block, 2 * p + 1) + column;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = pair_of<Element>(first[i], second[i]);
  } else if (2 * p < block.rows) {
    for (int64_t i = 0; i < count; ++i) to[i] = bits_of<Element>(first[i]);
  } else {
    std::fill_n(to, count, 0);
  }
}

// target[column][row] = rows[row][column]: bits, not numbers.
void store_transposed(const Bf16Pair (&rows)[kBlock][kBlock], Bf16Pair* target, int64_t stride) {
  BlockRow vectors[kBlock];
  std::memcpy(vectors, rows, sizeof vectors);
  transpose_block(vectors);
  for (int64_t c = 0; c < kBlock; ++c)
    std::memcpy(target + c * stride, &vectors[c], sizeof(BlockRow));
}

// A [rows, terms]
template <class Element>
void pack_rows(const Tensor& block, int64_t rows, int64_t pairs, int64_t stride, Bf16Pair* to) {
  for (int64_t row = 0; row < rows; ++row)
    if (row < block.rows)
      pairs_of_neighbours<Element>(row_of<Element>(block, row), block.cols, pairs,
                                   to + row * stride);
    else
      std::fill_n(to + row * stride, pairs, 0);
}

// A [terms, rows]
template <class Element>
void pack_rows_of_terms(const Tensor& block, int64_t rows, int64_t pairs, int64_t stride,
                        Bf16Pair* to) {
  for (int64_t pair = 0; pair < pairs; pair += kBlock)
    for (int64_t row = 0; row < rows; row += kBlock) {
      Bf16Pair words[kBlock][kBlock] = {};
      const int64_t there = std::clamp<int64_t>(block.cols - row, 0, kBlock);
      for (int64_t p = 0; p < kBlock; ++p)
        if (there == kBlock)
          pairs_of_rows<Element>(block, pair + p, row, kBlock, words[p]);
        else
          pairs_of_rows<Element>(block, pair + p, row, there, words[p]);
      store_transposed(words, to + row * stride + pair, stride);
    }
}

// A [terms, rows], with the rows of each group together. Copies a whole kTogether if that many rows
// exist, which is faster; the kernel ignores those of the next group.
template <class Element>
void pack_groups_of_terms(const Tensor& block, const EvenParts& groups, int64_t pairs,
                          Bf16Pair* to) {
  constexpr int64_t kTogether = PackedPairRows::kTogether;
  for (int64_t pair = 0; pair < pairs; ++pair)
    for (int64_t g = 0; g < groups.count(); ++g) {
      const IndexRange rows = groups[g];
      Bf16Pair* const target = to + g * PackedPairRows::kWordsTogether + pair * kTogether;
      if (rows.begin + kTogether <= block.cols)
        pairs_of_rows<Element>(block, pair, rows.begin, kTogether, target);
      else
        pairs_of_rows<Element>(block, pair, rows.begin, rows.size(), target);
    }
}

// B [terms, columns]
template <class Element>
void pack_panel_of_terms(const Tensor& block, IndexRange columns, int64_t width, int64_t pairs,
                         Bf16Pair* to) {
  for (int64_t pair = 0; pair < pairs; ++pair) {
    Bf16Pair* const row = to + pair * width;
    pairs_of_rows<Element>(block, pair, columns.begin, columns.size(), row);
    std::fill(row + columns.size(), row + width, 0);
  }
}

// B [columns, terms]
template <class Element>
void pack_panel(const Tensor& block, int64_t column, int64_t width, int64_t pairs, Bf16Pair* to) {
  for (int64_t c = 0; c < width; c += kBlock)
    for (int64_t pair = 0; pair < pairs; pair += kBlock) {
      Bf16Pair words[kBlock][kBlock] = {};
      for (int64_t i = 0; i < std::min<int64_t>(kBlock, block.rows - column - c); ++i)
        pairs_of_neighbours<Element>(row_of<Element>(block, column + c + i) + 2 * pair,
                                     block.cols - 2 * pair, kBlock, words[i]);
      store_transposed(words, to + pair * width + c, width);
    }
}

}  // namespace

void PackedPairRows::pack(const Factor& a, IndexRange rows, IndexRange terms) {
  groups_ = EvenParts::of_at_most({0, rows.size()}, rows_of_group_);
  together_ = a.terms_are_rows && rows_of_group_ <= kTogether;
  const Factor block{a.block(rows, terms), a.terms_are_rows};
  const int64_t pairs = packed_pairs(terms.size());
  if (!together_) return pack_pair_rows(block, padded(rows.size()), pairs, kPairRowStride, words_);
  require_exact(block.matrix.dtype);
  with_element(block.matrix.dtype, [&]<class Element>() {
    pack_groups_of_terms<Element>(block.matrix, groups_, pairs, words_);
  });
}

void pack_pair_rows(const Factor& block, int64_t rows, int64_t pairs, int64_t stride,
                    Bf16Pair* to) {
  require_exact(block.matrix.dtype);
  with_element(block.matrix.dtype, [&]<class Element>() {
    if (block.terms_are_rows)
      pack_rows_of_terms<Element>(block.matrix, rows, pairs, stride, to);
    else
      pack_rows<Element>(block.matrix, rows, pairs, stride, to);
  });
}

void pack_pair_panels(const Factor& block, int64_t columns, int64_t pairs, int64_t width,
                      Bf16Pair* to) {
  require_exact(block.matrix.dtype);
  with_element(block.matrix.dtype, [&]<class Element>() {
    for (int64_t column = 0; column < columns; column += width, to += pairs * width)
      if (block.terms_are_rows)
        pack_panel_of_terms<Element>(
            block.matrix, {column, std::min(column + width, block.matrix.cols)}, width, pairs, to);
      else
        pack_panel<Element>(block.matrix, column, width, pairs, to);
  });
}

PairRows round_columns_together(const float* x, int64_t rows, int64_t columns, Bf16Pair* to) {
  round_rows(x, rows, columns, to);
  return {to, 1, columns};
}

PairRows round_columns_apart(const float* x, int64_t rows, int64_t columns, Bf16Pair* to) {
  constexpr int64_t kMostColumns = 64;
  check(columns <= kMostColumns, "{} columns, at most {}", columns, kMostColumns);
  const int64_t pairs = rows / 2;
  for (int64_t pair = 0; pair < pairs; pair += kBlock) {
    Bf16Pair together[kBlock * kMostColumns], words[kBlock][kBlock];
    round_rows(x + 2 * pair * columns, int64_t{2} * kBlock, columns, together);
    for (int64_t c = 0; c < columns; c += kBlock) {
      for (int64_t p = 0; p < kBlock; ++p)
        std::copy_n(together + p * columns + c, kBlock, words[p]);
      store_transposed(words, to + c * pairs + pair, pairs);
    }
  }
  return {to, pairs, 1};
}

}  // namespace mpt
