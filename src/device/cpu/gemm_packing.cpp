#include "device/cpu/gemm_packing.h"

#include <algorithm>

#include "device/cpu/gemm_elements.h"
#include "device/cpu/transpose_block.h"

namespace mpt {
namespace {

template <class Element>
void copy(const typename Element::Stored* from, int64_t count, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = Element::value(from[i]);
}

template <class Element>
void pack_rows(const Tensor& block, float* to) {
  for (int64_t row = 0; row < block.rows; ++row)
    copy<Element>(row_of<Element>(block, row), block.cols, to + row * kRowStride);
}

// Copies term by term across all groups, following the memory layout. Copies a whole kTermStride if
// enough columns exist, which is faster; the kernel ignores those of the next group.
template <class Element>
void pack_terms(const Tensor& block, const EvenParts& groups, float* to) {
  IndexRange columns[kBlockRows / kKernelRows];
  for (int64_t g = 0; g < groups.count(); ++g) columns[g] = groups[g];
  for (int64_t term = 0; term < block.rows; ++term) {
    const typename Element::Stored* from = row_of<Element>(block, term);
    for (int64_t g = 0; g < groups.count(); ++g) {
      float* target = to + g * PackedRows::kGroupFloats + term * kTermStride;
      if (columns[g].begin + kTermStride <= block.cols)
        copy<Element>(from + columns[g].begin, kTermStride, target);
      else
        copy<Element>(from + columns[g].begin, columns[g].size(), target);
    }
  }
}

// b[terms, columns]: term by term across a few panels, so that reads are contiguous.
template <class Element>
void pack_term_rows(const Tensor& block, float* to) {
  constexpr int64_t kTogether = 4 * kPanelColumns;
  const int64_t depth = block.rows, whole = block.cols / kPanelColumns * kPanelColumns;
  for (int64_t first = 0; first < whole; first += kTogether)
    for (int64_t term = 0; term < depth; ++term)
      for (int64_t column = first; column < std::min(first + kTogether, whole);
           column += kPanelColumns)
        copy<Element>(row_of<Element>(block, term) + column, kPanelColumns,
                      to + column * depth + term * kPanelColumns);
  if (whole == block.cols) return;
  for (int64_t term = 0; term < depth; ++term) {
    float* const target = to + whole * depth + term * kPanelColumns;
    copy<Element>(row_of<Element>(block, term) + whole, block.cols - whole, target);
    std::fill(target + block.cols - whole, target + kPanelColumns, 0.0f);
  }
}

// b[columns, terms]
template <class Element>
void pack_term_columns(const Tensor& block, float* to) {
  const int64_t depth = block.cols;
  for (int64_t column = 0; column < align_up(block.rows, kPanelColumns); column += kBlock) {
    const int64_t height = std::clamp<int64_t>(block.rows - column, 0, kBlock);
    float* const target =
        to + column / kPanelColumns * kPanelColumns * depth + column % kPanelColumns;
    const auto* from = row_of<Element>(block, height > 0 ? column : 0);
    int64_t term = 0;
    for (; term + kBlock <= depth; term += kBlock)
      transpose_block(from + term, block.stride, height, kBlock, Element::value,
                      target + term * kPanelColumns, kPanelColumns);
    for (; term < depth; ++term)
      for (int64_t c = 0; c < kBlock; ++c)
        target[term * kPanelColumns + c] =
            c < height ? Element::value(from[c * block.stride + term]) : 0.0f;
  }
}

}  // namespace

void PackedRows::pack(const Factor& a, IndexRange rows, IndexRange terms) {
  groups_ = EvenParts::of_at_most({0, rows.size()}, kKernelRows);
  layout_ = a.terms_are_rows ? Transpose::kYes : Transpose::kNo;
  with_element(a.matrix.dtype, [&]<class Element>() {
    if (a.terms_are_rows)
      pack_terms<Element>(a.block(rows, terms), groups_, floats_);
    else
      pack_rows<Element>(a.block(rows, terms), floats_);
  });
}

const float* PackedRows::group(int64_t index) const {
  return floats_ +
         (layout_ == Transpose::kYes ? index * kGroupFloats : groups_[index].begin * kRowStride);
}

void pack_panels(const Factor& b, IndexRange columns, IndexRange terms, float* floats) {
  with_element(b.matrix.dtype, [&]<class Element>() {
    if (b.terms_are_rows)
      pack_term_rows<Element>(b.block(columns, terms), floats);
    else
      pack_term_columns<Element>(b.block(columns, terms), floats);
  });
}

}  // namespace mpt
