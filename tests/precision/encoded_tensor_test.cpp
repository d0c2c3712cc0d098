// Encoded weights: the shapes, names and bytes of their pieces, with padding and without.
#include "precision/encoded_tensor.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "precision/weight_formats.h"

namespace mpt {
namespace {

EncodedTensor planned(const WeightEncoding& encoding, const EncodedShape& shape) {
  PlanningAllocator plan;
  return allocate_encoded(encoding, shape, kWeightMemory, plan);
}

struct Piece {
  std::string name;
  DType dtype;
  int64_t rows, cols, stride;
};
void expect_pieces(const EncodedTensor& t, const std::vector<Piece>& pieces) {
  const std::vector<NamedTensor> named = t.pieces("w");
  ASSERT_EQ(named.size(), pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    SCOPED_TRACE(pieces[i].name);
    EXPECT_EQ(named[i].name, pieces[i].name);
    EXPECT_EQ(named[i].tensor.dtype, pieces[i].dtype);
    EXPECT_EQ(named[i].tensor.rows, pieces[i].rows);
    EXPECT_EQ(named[i].tensor.cols, pieces[i].cols);
    EXPECT_EQ(named[i].tensor.stride, pieces[i].stride);
  }
}

// 5461 columns stored as 5472: logical pieces of padded memory.
TEST(EncodedTensor, PiecesOfEveryFormat) {
  const EncodedShape shape{.rows = 30, .cols = 5461, .physical_rows = 32, .physical_cols = 5472};
  expect_pieces(planned({.format = WeightFormat::kF32}, shape),
                {{"w", DType::kF32, 30, 5461, 5472}});
  expect_pieces(planned({.format = WeightFormat::kBF16}, shape),
                {{"w", DType::kBF16, 30, 5461, 5472}});
  expect_pieces(planned({.format = WeightFormat::kBlockFp8, .fp8_block_size = 128}, shape),
                {{"w", DType::kE4M3, 30, 5461, 5472}, {"w_block_scales", DType::kF16, 30, 43, 43}});
  expect_pieces(
      planned({.format = WeightFormat::kBlockFp8, .fp8_block_size = 16}, shape),
      {{"w", DType::kE4M3, 30, 5461, 5472}, {"w_block_scales", DType::kF16, 30, 342, 342}});
  expect_pieces(planned({.format = WeightFormat::kNvfp4}, shape),
                {{"w", DType::kU8, 30, 2736, 2736},
                 {"w_block_scales", DType::kE4M3, 30, 342, 342},
                 {"w_tensor_scale", DType::kF32, 1, 1, 1}});
  expect_pieces(
      planned({.format = WeightFormat::kMxfp8}, shape),
      {{"w", DType::kE4M3, 30, 5461, 5472}, {"w_block_scales", DType::kE8M0, 30, 171, 171}});
}

// docs/numerics.md "Memory accounting": m n + 2 m ceil(n / B), and m n16 / 2 + m n16 / 16 + 4.
TEST(EncodedTensor, LogicalBytes) {
  const EncodedShape shape{.rows = 30, .cols = 5461, .physical_rows = 32, .physical_cols = 5472};
  const int64_t n = 30 * 5461;
  EXPECT_EQ(planned({.format = WeightFormat::kF32}, shape).logical_bytes(), 4 * n);
  EXPECT_EQ(planned({.format = WeightFormat::kBF16}, shape).logical_bytes(), 2 * n);
  EXPECT_EQ(planned({.format = WeightFormat::kBlockFp8}, shape).logical_bytes(), n + 2 * 30 * 43);
  EXPECT_EQ(planned({.format = WeightFormat::kNvfp4}, shape).logical_bytes(),
            30 * 5472 / 2 + 30 * 5472 / 16 + 4);
  EXPECT_EQ(planned({.format = WeightFormat::kMxfp8}, shape).logical_bytes(), n + 30 * 171);
}

}  // namespace
}  // namespace mpt
