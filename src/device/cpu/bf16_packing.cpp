#include "device/cpu/bf16_packing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/bf16.h"
#include "core/check.h"
#include "core/float_format.h"

namespace mpt {
namespace {

// Storage type of an element, and the bits of its value in BF16.
struct Bf16Bits {
  using Stored = uint16_t;
  static uint16_t of(uint16_t x) { return x; }
};
template <FloatFormat kFormat>
struct Fp8Bits {
  using Stored = uint8_t;
  static uint16_t of(uint8_t code) { return kBits[code]; }

 private:
  static inline const std::array<uint16_t, 256> kBits = [] {
    std::array<uint16_t, 256> bits{};
    for (uint32_t code = 0; code < bits.size(); ++code)
      bits[code] = uint16_t(std::bit_cast<uint32_t>(decode<kFormat>(code)) >> 16);
    return bits;
  }();
};

template <class F>
void with_bits(DType type, const F& f) {
  switch (type) {
    case DType::kBF16:
      return f.template operator()<Bf16Bits>();
    case DType::kE4M3:
      return f.template operator()<Fp8Bits<kE4M3>>();
    case DType::kE5M2:
      return f.template operator()<Fp8Bits<kE5M2>>();
    default:
      throw LogicError(fmt::format("{} is not exact in bf16", name_of(type)));
  }
}

constexpr Bf16Pair pair_of(uint16_t first, uint16_t second) {
  return Bf16Pair{first} | Bf16Pair{second} << 16;
}

template <class Bits>
const typename Bits::Stored* row_of(const Tensor& block, int64_t row) {
  return block.as<typename Bits::Stored>() + row * block.stride;
}

// Neighbours of one row, which holds `terms`, to `count` pairs, the last of them padded.
template <class Bits>
void pairs_of_neighbours(const typename Bits::Stored* from, int64_t terms, int64_t count,
                         Bf16Pair* to) {
  const int64_t whole = std::clamp<int64_t>(terms / 2, 0, count);
#pragma omp simd
  for (int64_t p = 0; p < whole; ++p)
    to[p] = pair_of(Bits::of(from[2 * p]), Bits::of(from[2 * p + 1]));
  for (int64_t p = whole; p < count; ++p)
    to[p] = 2 * p < terms ? pair_of(Bits::of(from[2 * p]), 0) : 0;
}

// Of elements above one another in the rows of terms 2p and 2p + 1; missing terms are zeros.
template <class Bits>
void pairs_of_rows(const Tensor& block, int64_t p, int64_t column, int64_t count, Bf16Pair* to) {
  const auto* first = row_of<Bits>(block, std::min(2 * p, block.rows - 1)) + column;
  if (2 * p + 1 < block.rows) {
    const auto* second = row_of<Bits>(block, 2 * p + 1) + column;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = pair_of(Bits::of(first[i]), Bits::of(second[i]));
  } else if (2 * p < block.rows) {
    for (int64_t i = 0; i < count; ++i) to[i] = pair_of(Bits::of(first[i]), 0);
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

// A group of A [rows, terms].
template <class Bits>
void pack_rows(const Tensor& block, int64_t rows, int64_t pairs, Bf16Pair* to) {
  for (int64_t row = 0; row < rows; ++row)
    if (row < block.rows)
      pairs_of_neighbours<Bits>(row_of<Bits>(block, row), block.cols, pairs,
                                to + row * kPairRowStride);
    else
      std::fill_n(to + row * kPairRowStride, pairs, 0);
}

// A group of A [terms, rows].
template <class Bits>
void pack_rows_of_terms(const Tensor& block, int64_t rows, int64_t pairs, Bf16Pair* to) {
  for (int64_t pair = 0; pair < pairs; pair += kBlock)
    for (int64_t row = 0; row < rows; row += kBlock) {
      Bf16Pair words[kBlock][kBlock] = {};
      const int64_t there = std::clamp<int64_t>(block.cols - row, 0, kBlock);
      for (int64_t p = 0; p < kBlock; ++p)
        if (there == kBlock)
          pairs_of_rows<Bits>(block, pair + p, row, kBlock, words[p]);
        else
          pairs_of_rows<Bits>(block, pair + p, row, there, words[p]);
      store_transposed(words, to + row * kPairRowStride + pair, kPairRowStride);
    }
}

// B [terms, columns]
template <class Bits>
void pack_panel_of_terms(const Tensor& block, int64_t column, int64_t pairs, Bf16Pair* to) {
  const int64_t there = std::min(kPairColumns, block.cols - column);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    Bf16Pair* const row = to + pair * kPairColumns;
    if (there == kPairColumns) {
      pairs_of_rows<Bits>(block, pair, column, kPairColumns, row);
    } else {
      pairs_of_rows<Bits>(block, pair, column, there, row);
      std::fill(row + there, row + kPairColumns, 0);
    }
  }
}

// B [columns, terms]
template <class Bits>
void pack_panel(const Tensor& block, int64_t column, int64_t pairs, Bf16Pair* to) {
  for (int64_t c = 0; c < kPairColumns; c += kBlock)
    for (int64_t pair = 0; pair < pairs; pair += kBlock) {
      Bf16Pair words[kBlock][kBlock] = {};
      for (int64_t i = 0; i < std::min<int64_t>(kBlock, block.rows - column - c); ++i)
        pairs_of_neighbours<Bits>(row_of<Bits>(block, column + c + i) + 2 * pair,
                                  block.cols - 2 * pair, kBlock, words[i]);
      store_transposed(words, to + pair * kPairColumns + c, kPairColumns);
    }
}

}  // namespace

void PackedPairRows::pack(const Factor& a, IndexRange rows, IndexRange terms) {
  groups_ = EvenParts::of_at_most({0, rows.size()}, most_rows_);
  check(groups_.count() <= kGroups, "{} rows in groups of {}", rows.size(), most_rows_);
  const int64_t pairs = packed_pairs(terms.size());
  with_bits(a.matrix.dtype, [&]<class Bits>() {
    for (int64_t g = 0; g < groups_.count(); ++g) {
      const IndexRange own{rows.begin + groups_[g].begin, rows.begin + groups_[g].end};
      const Tensor block = a.block(own, terms);
      Bf16Pair* const to = words_ + g * slot_rows(most_rows_) * kPairRowStride;
      const int64_t slot = align_up(own.size(), kAmxTileRows);
      if (a.terms_are_rows)
        pack_rows_of_terms<Bits>(block, slot, pairs, to);
      else
        pack_rows<Bits>(block, slot, pairs, to);
    }
  });
}

void pack_pair_panels(const Factor& b, IndexRange columns, IndexRange terms, Bf16Pair* words) {
  const int64_t pairs = packed_pairs(terms.size());
  const Tensor block = b.block(columns, terms);
  with_bits(b.matrix.dtype, [&]<class Bits>() {
    for (int64_t column = 0; column < columns.size(); column += kPairColumns) {
      if (b.terms_are_rows)
        pack_panel_of_terms<Bits>(block, column, pairs, words + column * pairs);
      else
        pack_panel<Bits>(block, column, pairs, words + column * pairs);
    }
  });
}

}  // namespace mpt
