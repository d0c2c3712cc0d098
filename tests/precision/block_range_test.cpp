// Ranges of update blocks: their parts of every piece of an encoded tensor, against a loop over all
// elements.
#include "core/block_range.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/blocks.h"
#include "device/backends.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

std::vector<WeightEncoding> encodings() {
  return {{.format = WeightFormat::kF32},
          {.format = WeightFormat::kBF16},
          {.format = WeightFormat::kBlockFp8, .fp8_block_size = 16},
          {.format = WeightFormat::kBlockFp8, .fp8_block_size = 128},
          {.format = WeightFormat::kBlockFp8, .fp8_block_size = 256},
          {.format = WeightFormat::kNvfp4},
          {.format = WeightFormat::kMxfp8}};
}

struct Shape {
  int64_t rows, cols, physical_cols;
};
// Less than an update block, exactly one or two, a bit more, odd numbers; with and without padding.
std::vector<Shape> shapes() {
  return {{1, 1, 1},     {3, 17, 32},   {2, 255, 256}, {3, 256, 256}, {3, 257, 272},
          {2, 512, 528}, {2, 521, 521}, {1, 800, 800}, {4, 300, 320}};
}

std::vector<BlockRange> every_range(const BlockGrid& grid) {
  std::vector<BlockRange> ranges;
  for (int64_t first = 0; first < grid.blocks(); ++first)
    for (int64_t count = 0; first + count <= grid.blocks(); ++count)
      ranges.push_back({first, count});
  return ranges;
}

EncodedTensor allocated(const WeightEncoding& encoding, const Shape& shape, Allocator& allocator) {
  const EncodedShape encoded{shape.rows, shape.cols, shape.rows + 1, shape.physical_cols};
  return allocate_encoded(encoding, encoded, kWeightMemory, allocator);
}

// Returns how many logical elements one element of a piece represents: codes of the tensor first,
// then block scales.
int64_t elements_per(const WeightEncoding& encoding, size_t piece) {
  const bool nvfp4 = encoding.format == WeightFormat::kNvfp4;
  if (piece == 0) return nvfp4 ? 2 : 1;
  if (encoding.format == WeightFormat::kMxfp8) return 32;
  return nvfp4 ? kNvfp4Block : encoding.fp8_block_size;
}

// Elements of a piece that belong to the range's update blocks, row after row.
struct Member {
  int64_t packed;  // position without padding
  const std::byte* address;
};
std::vector<Member> members(const Tensor& piece, int64_t elements_each, const BlockGrid& grid,
                            BlockRange range) {
  std::vector<Member> found;
  for (int64_t row = 0; row < piece.rows; ++row)
    for (int64_t col = 0; col < piece.cols; ++col) {
      const int64_t block = row * grid.per_row() + col * elements_each / kUpdateBlock;
      if (block < range.first || block >= range.end()) continue;
      found.push_back(
          {row * piece.cols + col, piece.data + (row * piece.stride + col) * size_of(piece.dtype)});
    }
  return found;
}

template <class F>
void for_every_case(const F& f) {
  for (const WeightEncoding& encoding : encodings())
    for (const Shape& shape : shapes()) {
      const auto allocator = make_cpu_device(1)->make_allocator();
      const EncodedTensor t = allocated(encoding, shape, *allocator);
      for (const BlockRange range : every_range({shape.rows, shape.cols})) {
        SCOPED_TRACE(fmt::format("{} {}, [{},{}], blocks {}+{}", name_of(encoding.format),
                                 encoding.fp8_block_size, shape.rows, shape.cols, range.first,
                                 range.count));
        f(t, range);
      }
    }
}

TEST(BlockRange, SpansAreTheMemoryOfTheirBlocks) {
  for_every_case([](const EncodedTensor& t, BlockRange range) {
    const std::vector<Tensor> spans = spans_of(t, range);
    const std::vector<NamedTensor> pieces = t.pieces("w");
    ASSERT_EQ(spans.size(), is_scaled(t.encoding.format) ? 2u : 1u);
    for (size_t i = 0; i < spans.size(); ++i) {
      const Tensor& piece = pieces[i].tensor;
      const std::vector<Member> expected =
          members(piece, elements_per(t.encoding, i), {t.rows, t.cols}, range);
      ASSERT_EQ(spans[i].dtype, piece.dtype);
      ASSERT_EQ(spans[i].rows, 1);
      ASSERT_TRUE(spans[i].contiguous());
      if (expected.empty()) {
        ASSERT_EQ(spans[i].cols, 0);
        continue;
      }
      ASSERT_EQ(spans[i].data, expected.front().address);
      ASSERT_EQ(spans[i].data + spans[i].bytes(), expected.back().address + size_of(piece.dtype));
    }
  });
}

TEST(BlockRange, PartsAreThePackedElementsOfTheirBlocks) {
  for_every_case([](const EncodedTensor& t, BlockRange range) {
    const std::vector<NamedTensor> pieces = t.pieces("w");
    const std::vector<TensorPart> parts = parts_of(t, "w", range);
    if (range.empty()) {
      ASSERT_TRUE(parts.empty());
      return;
    }
    const bool with_tensor_scale = t.tensor_scale.rows > 0 && range.first == 0;
    ASSERT_EQ(parts.size(), spans_of(t, range).size() + size_t(with_tensor_scale));
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(parts[i].whole.name, pieces[i].name);
      ASSERT_EQ(parts[i].whole.tensor.data, pieces[i].tensor.data);
      ASSERT_EQ(parts[i].whole.shape(), pieces[i].shape());
      if (i == 2) {
        ASSERT_TRUE(parts[i].is_whole());
        continue;
      }
      const std::vector<Member> expected =
          members(pieces[i].tensor, elements_per(t.encoding, i), {t.rows, t.cols}, range);
      ASSERT_EQ(parts[i].first, expected.front().packed);
      ASSERT_EQ(parts[i].count, int64_t(expected.size()));
      ASSERT_EQ(expected.back().packed - expected.front().packed + 1, parts[i].count) << "one span";
    }
  });
}

// Data written through the view of a whole are in the span, each element at its position from the
// first.
TEST(BlockRange, AViewAsOfAWholeReachesTheSpan) {
  for (const Shape& shape : shapes()) {
    const BlockGrid grid{shape.rows, shape.cols};
    const Tensor like{nullptr, DType::kF32, shape.rows, shape.cols, shape.physical_cols};
    for (const BlockRange range : every_range(grid)) {
      const int64_t count = span_of(like, grid, range).cols;
      std::vector<float> memory(size_t(count + 2), -1.0f);
      const Tensor span{reinterpret_cast<std::byte*>(memory.data() + 1), DType::kF32, 1, count,
                        count};
      const Tensor whole = whole_of_span(span, like, range);
      ASSERT_EQ(whole.rows, shape.rows);
      ASSERT_EQ(whole.cols, shape.cols);
      ASSERT_EQ(whole.stride, shape.physical_cols);
      if (range.empty()) continue;
      const BlockSpan first = grid.span(range.first);
      const int64_t begin = first.row * like.stride + first.col;
      int64_t elements = 0;
      for (int64_t block = range.first; block < range.end(); ++block) {
        const BlockSpan u = grid.span(block);
        for (int64_t col = u.col; col < u.col + u.count; ++col, ++elements) {
          const int64_t place = u.row * like.stride + col;
          const auto address =
              reinterpret_cast<uintptr_t>(whole.data) + uintptr_t(place) * sizeof(float);
          ASSERT_EQ(address, reinterpret_cast<uintptr_t>(memory.data() + 1 + place - begin));
          ASSERT_LT(place - begin, count);
        }
      }
      ASSERT_EQ(elements, elements_of(grid, range, {shape.cols}).count);
    }
  }
}

TEST(BlockRange, RefusesBlocksThatAreNotThere) {
  const BlockGrid grid{2, 300};
  const Tensor t{nullptr, DType::kF32, 2, 300, 300};
  for (const BlockRange range :
       {BlockRange{-1, 2}, BlockRange{0, 5}, BlockRange{4, 1}, BlockRange{1, -1}}) {
    EXPECT_THROW(elements_of(grid, range, {300}), LogicError);
    EXPECT_THROW(span_of(t, grid, range), LogicError);
  }
}

}  // namespace
}  // namespace mpt
