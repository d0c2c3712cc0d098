// FP8 operands on the GPU against the CPU, bit for bit: codes in rows and transposed, the data
// gathered and recorded by casts, and the update of scales.
#include "precision/fp8_ops.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "cuda/gpu.h"
#include "device/backends.h"
#include "precision/codec_ops.h"
#include "support/draws.h"
#include "support/host_encoded.h"

namespace mpt::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct CastShape {
  int64_t rows, cols;
};
// Multiples of 16 and of tiles, tile boundaries off by one element, and rows of a stored 5461.
constexpr CastShape kShapes[] = {{16, 272}, {272, 16}, {64, 256}, {80, 304},
                                 {1, 1},    {17, 33},  {65, 257}, {129, 341}};

// Source strides in its elements, target strides in bytes.
struct Strides {
  int64_t source, target, transposed;  // elements beyond a row's end
};
constexpr Strides kStrides[] = {{0, 0, 0}, {16, 32, 48}, {8, 8, 16}, {3, 5, 7}};

enum class Wanted : uint8_t { kRows, kTransposed, kBoth };

struct Slot {
  HostMatrix numbers{DType::kF32, {1, 4}};  // scale, amax, used scale, its inverse
  Slot() {
    numbers.set(0, 0, 149.333328f);
    numbers.set(0, 1, 0.25f);
    numbers.set(0, 2, 7.5f);
    numbers.set(0, 3, 1 / 7.5f);
  }
};

Fp8Slot slot_of(const Tensor& numbers) {
  float* const first = numbers.as<float>();
  return {.scale = first, .amax = first + 1, .used_scale = first + 2, .scale_inv = first + 3};
}

struct Cast {
  EncodedTensor source;
  DType type = DType::kE4M3;
  Strides strides{};
  Wanted wanted = Wanted::kBoth;
  Fp8CastKind kind = Fp8CastKind::kFold;
  Format through = Format::kF32;
};

// The same cast on both: everything that it may modify, and the guards around, must be equal.
class Fp8OpsOnGpu : public GpuTest {
 protected:
  void expect_equal(const Cast& cast) {
    Gpu gpu;
    HostMatrix rows(cast.type, {cast.source.rows, cast.source.cols, cast.strides.target}),
        columns(cast.type, {cast.source.cols, cast.source.rows, cast.strides.transposed});
    const HostMatrix no_rows = rows, no_columns = columns;
    const Slot slot;
    const Tensor gpu_rows = gpu.copy(rows), gpu_columns = gpu.copy(columns),
                 gpu_slot = gpu.copy(slot.numbers);
    const auto call = [&](const EncodedTensor& source, const Tensor& target,
                          const Tensor& transposed, const Tensor& numbers) {
      return Fp8CastCall{.source = source,
                         .through = cast.through,
                         .target = cast.wanted == Wanted::kTransposed ? Tensor{} : target,
                         .transposed = cast.wanted == Wanted::kRows ? Tensor{} : transposed,
                         .slot = slot_of(numbers),
                         .kind = cast.kind};
    };
    EncodedTensor source = cast.source;
    source.codes = gpu.copy(source.codes);
    source.block_scales = gpu.copy(source.block_scales);
    source.tensor_scale = gpu.copy(source.tensor_scale);
    make_ops<Fp8Ops>(gpu.ref())->cast(call(source, gpu_rows, gpu_columns, gpu_slot));
    make_ops<Fp8Ops>({})->cast(call(cast.source, rows, columns, slot.numbers));
    EXPECT_EQ(cast.wanted == Wanted::kTransposed, rows == no_rows);
    EXPECT_EQ(cast.wanted == Wanted::kRows, columns == no_columns);
    expect_same(gpu, gpu_rows, rows);
    expect_same(gpu, gpu_columns, columns);
    expect_same(gpu, gpu_slot, slot.numbers);
  }
  static void expect_same(Gpu& gpu, const Tensor& found, const HostMatrix& wanted) {
    const std::vector<std::byte> bytes = gpu.fetch(found);
    EXPECT_EQ(std::memcmp(bytes.data(), wanted.bytes().data(), bytes.size()), 0);
  }
};

float any_value(Draws& draws) {
  constexpr float kSpecial[] = {0.0f,  -0.0f,  kInf,    -kInf, kNaN,
                                -kNaN, 1e-30f, -1e-42f, 3e38f, 464.0f / 149.333328f};
  const uint32_t word = draws.word();
  return word % 16 == 0 ? kSpecial[word / 16 % std::size(kSpecial)] : draws.bell(2);
}

HostMatrix plain_source(DType type, const CastShape& shape, int64_t padding) {
  HostMatrix source(type, {shape.rows, shape.cols, padding});
  Draws draws(uint64_t(shape.rows * 1000 + shape.cols));
  source.fill([&](int64_t, int64_t) { return any_value(draws); });
  return source;
}

TEST_F(Fp8OpsOnGpu, CastsOfPlainTensors) {
  for (const CastShape& shape : kShapes)
    for (const Strides& strides : kStrides)
      for (const DType from : {DType::kBF16, DType::kF32}) {
        // All strides of one shape; for the others, packed and unpacked rows.
        if (shape.cols != 304 && strides.source % 16 == 8) continue;
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.cols << " of " << name_of(from) << ", rows "
                     << strides.source << " apart");
        const HostMatrix source = plain_source(from, shape, strides.source);
        for (const Wanted wanted : {Wanted::kRows, Wanted::kTransposed, Wanted::kBoth})
          expect_equal({.source = encoded_view(source),
                        .type = from == DType::kBF16 ? DType::kE5M2 : DType::kE4M3,
                        .strides = strides,
                        .wanted = wanted});
        expect_equal(
            {.source = encoded_view(source), .strides = strides, .through = Format::kBF16});
      }
}

TEST_F(Fp8OpsOnGpu, KindsOfCasts) {
  const HostMatrix source = plain_source(DType::kBF16, {80, 272}, 0);
  for (const Fp8CastKind kind : {Fp8CastKind::kFold, Fp8CastKind::kNoFold, Fp8CastKind::kAgain})
    for (const DType type : {DType::kE4M3, DType::kE5M2})
      expect_equal({.source = encoded_view(source), .type = type, .kind = kind});
}

// Targets that begin in the middle of a larger tensor: like the parts of fused weights, and the
// live columns of X^T.
TEST_F(Fp8OpsOnGpu, PartsOfLargerTensors) {
  for (const int64_t first : {16, 8, 5}) {
    Gpu gpu;
    const CastShape shape{75, 341};
    const HostMatrix source = plain_source(DType::kBF16, shape, 11);
    const HostMatrix rows(DType::kE4M3, {shape.rows + 32, shape.cols + 32}),
        columns(DType::kE4M3, {shape.cols + 32, shape.rows + 32});
    const Slot slot;
    const Tensor gpu_source = gpu.copy(source), gpu_rows = gpu.copy(rows),
                 gpu_columns = gpu.copy(columns), gpu_slot = gpu.copy(slot.numbers);
    const auto part = [&](const Tensor& t, int64_t r, int64_t c) {
      return t.row_range(first, r).columns(first, c);
    };
    const auto call = [&](const Tensor& from, const Tensor& target, const Tensor& transposed,
                          const Tensor& numbers) {
      return Fp8CastCall{.source = encoded_view(from),
                         .target = part(target, shape.rows, shape.cols),
                         .transposed = part(transposed, shape.cols, shape.rows),
                         .slot = slot_of(numbers)};
    };
    make_ops<Fp8Ops>(gpu.ref())->cast(call(gpu_source, gpu_rows, gpu_columns, gpu_slot));
    make_ops<Fp8Ops>({})->cast(call(source, rows, columns, slot.numbers));
    expect_same(gpu, gpu_rows, rows);
    expect_same(gpu, gpu_columns, columns);
    expect_same(gpu, gpu_slot, slot.numbers);
  }
}

HostEncoded encoded_source(WeightFormat format, const CastShape& shape, int64_t padding) {
  HostEncoded weights({.format = format, .fp8_block_size = 32}, {shape.rows, shape.cols, padding});
  HostMatrix plain(DType::kF32, {shape.rows, shape.cols});
  Draws draws(5);
  plain.fill([&](int64_t, int64_t) { return draws.bell(0.3); });
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  make_ops<CodecOps>({}, {*allocator, shape.rows})->encode(plain, weights.view());
  return weights;
}

TEST_F(Fp8OpsOnGpu, CastsOfEncodedWeights) {
  for (const WeightFormat format :
       {WeightFormat::kBlockFp8, WeightFormat::kNvfp4, WeightFormat::kMxfp8})
    for (const CastShape& shape : kShapes) {
      SCOPED_TRACE(testing::Message()
                   << name_of(format) << " " << shape.rows << " x " << shape.cols);
      const HostEncoded weights = encoded_source(format, shape, 16);
      for (const Format through : {Format::kF32, Format::kBF16})
        expect_equal({.source = weights.view(), .strides = {0, 16, 32}, .through = through});
    }
}

TEST_F(Fp8OpsOnGpu, GatheredAmax) {
  for (const CastShape& shape : kShapes)
    for (const DType from : {DType::kBF16, DType::kF32}) {
      Gpu gpu;
      HostMatrix source(from, {shape.rows, shape.cols});
      Draws draws(9);
      source.fill([&](int64_t r, int64_t c) { return (r + c) % 7 == 3 ? kNaN : draws.bell(3); });
      const Slot slot;
      const Tensor gpu_slot = gpu.copy(slot.numbers), gpu_source = gpu.copy(source);
      make_ops<Fp8Ops>(gpu.ref())->gather_amax(
          {.source = encoded_view(gpu_source), .slot = slot_of(gpu_slot)});
      make_ops<Fp8Ops>({})->gather_amax(
          {.source = encoded_view(source), .slot = slot_of(slot.numbers)});
      expect_same(gpu, gpu_slot, slot.numbers);
      EXPECT_GE(slot.numbers.at(0, 1), 0.25f);
    }
}

TEST_F(Fp8OpsOnGpu, GatheredAmaxOfEncodedWeights) {
  for (const WeightFormat format :
       {WeightFormat::kBlockFp8, WeightFormat::kNvfp4, WeightFormat::kMxfp8})
    for (const CastShape& shape : kShapes) {
      SCOPED_TRACE(testing::Message()
                   << name_of(format) << " " << shape.rows << " x " << shape.cols);
      const HostEncoded weights = encoded_source(format, shape, 16);
      Gpu gpu;
      EncodedTensor on_gpu = weights.view();
      for (Tensor* piece : {&on_gpu.codes, &on_gpu.block_scales, &on_gpu.tensor_scale})
        *piece = gpu.copy(*piece);
      const Slot slot;
      const Tensor gpu_slot = gpu.copy(slot.numbers);
      make_ops<Fp8Ops>(gpu.ref())->gather_amax({.source = on_gpu, .slot = slot_of(gpu_slot)});
      make_ops<Fp8Ops>({})->gather_amax({.source = weights.view(), .slot = slot_of(slot.numbers)});
      expect_same(gpu, gpu_slot, slot.numbers);
    }
}

TEST_F(Fp8OpsOnGpu, Rolls) {
  for (const int64_t length : {1, 2, 3, 64, 65, 66, 129, 1024})
    for (const int64_t slots : {1, 31, 32, 33, 97})
      for (const AmaxAlgorithm algorithm : {AmaxAlgorithm::kMax, AmaxAlgorithm::kMostRecent}) {
        SCOPED_TRACE(testing::Message() << length << " amaxes of " << slots);
        Gpu gpu;
        HostMatrix history(DType::kF32, {length, slots}), scale(DType::kF32, {1, slots}),
            last(DType::kF32, {1, slots}), frozen(DType::kI32, {1, slots});
        Draws draws(uint64_t(length + slots));
        // No value seen in some slots, infinities in the past and now in others.
        history.fill([&](int64_t r, int64_t c) {
          const float x = std::fabs(draws.bell(4));
          if (c % 5 == 1) return r == 0 ? 0.0f : x;
          return (c % 5 == 2 && r == length / 2) || (c % 5 == 3 && r == 0) ? kInf : x;
        });
        scale.fill([](int64_t, int64_t c) { return 1.5f + float(c); });
        const Tensor on_gpu[] = {gpu.copy(history), gpu.copy(scale), gpu.copy(last),
                                 gpu.copy(frozen)};
        const auto call = [&](const Tensor& h, const Tensor& s, const Tensor& l, const Tensor& f) {
          return Fp8RollCall{.history = h,
                             .scale = s,
                             .last_amax = l,
                             .frozen = f,
                             .scaled_max = 448,
                             .algorithm = algorithm};
        };
        const HostMatrix before = scale;
        make_ops<Fp8Ops>(gpu.ref())->roll(call(on_gpu[0], on_gpu[1], on_gpu[2], on_gpu[3]));
        make_ops<Fp8Ops>({})->roll(call(history, scale, last, frozen));
        EXPECT_FALSE(scale == before);
        expect_same(gpu, on_gpu[0], history);
        expect_same(gpu, on_gpu[1], scale);
        expect_same(gpu, on_gpu[2], last);
        expect_same(gpu, on_gpu[3], frozen);
      }
}

TEST_F(Fp8OpsOnGpu, ScaleFromAmax) {
  Gpu gpu;
  const Slot slot;
  const Tensor gpu_slot = gpu.copy(slot.numbers);
  make_ops<Fp8Ops>(gpu.ref())->scale_from_amax(slot_of(gpu_slot), 448);
  make_ops<Fp8Ops>({})->scale_from_amax(slot_of(slot.numbers), 448);
  expect_same(gpu, gpu_slot, slot.numbers);
  EXPECT_EQ(slot.numbers.at(0, 0), 1792);
}

TEST_F(Fp8OpsOnGpu, NotedScale) {
  Gpu gpu;
  const Slot slot;
  const Tensor gpu_slot = gpu.copy(slot.numbers);
  make_ops<Fp8Ops>(gpu.ref())->note_scale(slot_of(gpu_slot));
  make_ops<Fp8Ops>({})->note_scale(slot_of(slot.numbers));
  expect_same(gpu, gpu_slot, slot.numbers);
  EXPECT_EQ(slot.numbers.at(0, 1), 0.25f);
  EXPECT_EQ(slot.numbers.at(0, 2), 149.333328f);
  EXPECT_EQ(slot.numbers.at(0, 3), 1 / 149.333328f);
}

#ifdef MPT_FAKE_CUDA
// For any order of blocks and threads.
TEST_F(Fp8OpsOnGpu, OrderDoesNotMatter) {
  fake_cuda::set_order(fake_cuda::Order::kBackward);
  const HostMatrix source = plain_source(DType::kBF16, {129, 341}, 3);
  expect_equal({.source = encoded_view(source), .strides = {3, 11, 15}});
}
#endif

}  // namespace
}  // namespace mpt::test
