// CodecOps for any Exec.
#pragma once

#include "device/exec.h"
#include "precision/codec_ops.h"
#include "precision/largest.h"
#include "precision/weight_formats.h"

namespace mpt {

// most[row]: maximum of |x| over a row.
struct RowAmax {
  const float* data;
  int64_t cols, stride;
  float* most;

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const float* const x = data + row * stride;
    const float amax = group.max(cols, [=](int64_t i) { return std::fabs(x[i]); });
    if (group.lane() == 0) most[row] = amax;
  }
};

// most[row]: largest scale byte of a row.
struct RowScaleMax {
  const uint8_t* scales;
  int64_t cols, stride;
  float* most;

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const uint8_t* const scale = scales + row * stride;
    const float maximum = group.max(cols, [=](int64_t i) { return float(scale[i]); });
    if (group.lane() == 0) most[row] = maximum;
  }
};

// Sets the tensor's scale at its first encoding, from its amax.
template <class Codec>
struct FirstTensorScale {
  const float* amax;
  Codec codec;
  float* scale;

  MPT_HD void operator()(int64_t) const { *scale = codec.first_tensor_scale(*amax); }
};

struct ZeroBytes {
  uint8_t* data;
  int64_t cols, stride;

  MPT_HD void operator()(int64_t i) const { data[i / cols * stride + i % cols] = 0; }
};

// Decodes with one codec and encodes with another, rounding to nearest.
template <class From, class To>
struct Transcode {
  BlockGrid grid;
  From from;
  To to;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    const BlockSpan span = grid.span(block);
    float x[LanePart<G>::kSize];
    from.load(group, span, x);
    to.store(group, span, x, DitherSource{}.draw(group, span));
  }
};

// Moves a mean towards the weights by a fraction of the distance.
template <class Weights, class Mean>
struct FollowBlock {
  BlockGrid grid;
  int64_t first;  // block
  Weights weights;
  Mean mean;
  float share;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kSize = LanePart<G>::kSize;
    const BlockSpan span = grid.span(first + block);
    float w[kSize], m[kSize];
    weights.load(group, span, w);
    mean.load(group, span, m);
    for (int i = 0; i < kSize; ++i) m[i] += share * (w[i] - m[i]);
    mean.store(group, span, m, DitherSource{}.draw(group, span));
  }
};

// The two passes of a rescale. Both are no-ops unless the largest block scale requires it.
template <class Codec>
struct RescaleBlock {
  BlockGrid grid;
  Codec codec;
  const float* largest_scale;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    if (Codec::must_rescale(*largest_scale)) codec.rescale(group, grid.span(block));
  }
};
template <class Codec>
struct RescaleTensor {
  const float* largest_scale;
  float* scale;

  MPT_HD void operator()(int64_t) const {
    if (Codec::must_rescale(*largest_scale)) *scale = Codec::rescaled_tensor_scale(*scale);
  }
};

template <Exec E>
class CodecOpsOn : public CodecOps {
 public:
  CodecOpsOn(E exec, Allocator& allocator, int64_t most_rows)
      : exec_(exec), row_maxima_(allocator.tensor(kScratchMemory, DType::kF32, 1, most_rows + 1)) {}

  void encode(const Tensor& source, const EncodedTensor& target) override {
    check_shapes(target, source, "encode");
    check(source.dtype == DType::kF32, "encode from {}; expected fp32", name_of(source.dtype));
    with_codec(target, [&]<class Codec>(const Codec& codec) {
      if constexpr (Codec::kTensorScale) start(codec, source, target);
      transcode(target, ElementCodec(source), codec);
    });
  }

  void decode(const EncodedTensor& source, const Tensor& target) override {
    check_shapes(source, target, "decode");
    with_codec(source, [&](const auto& codec) { transcode(source, codec, ElementCodec(target)); });
  }

  void follow(const EncodedTensor& weights, BlockRange own, const Tensor& mean,
              float share) override {
    check_shapes(weights, mean, "mean");
    check(mean.dtype == DType::kF32, "mean in {}; expected fp32", name_of(mean.dtype));
    if (own.empty()) return;
    const BlockGrid grid{weights.rows, weights.cols};
    with_codec(weights, [&]<class Codec>(const Codec& codec) {
      const ElementCodec plain(mean);
      exec_.blocks(own.count,
                   FollowBlock<Codec, ElementCodec>{grid, own.first, codec, plain, share});
    });
  }

  void rescale(const EncodedTensor& tensor) override {
    if (!rescales(tensor.encoding)) return;
    with_codec(tensor, [&]<class Codec>(const Codec& codec) {
      if constexpr (Codec::kRescales) rescale_by(codec, tensor);
    });
  }

 private:
  // Sets the tensor's scale from its values and clears block scales, the initial state of encodings
  // with memory.
  template <class Codec>
  void start(const Codec& codec, const Tensor& source, const EncodedTensor& target) {
    exec_.rows(source.rows,
               RowAmax{source.as<float>(), source.cols, source.stride, maxima(source.rows)});
    reduce_rows(source.rows);
    exec_.elements(1, FirstTensorScale<Codec>{total(), codec, target.tensor_scale.as<float>()});
    const Tensor& scales = target.block_scales;
    const int64_t bytes = size_of(scales.dtype);
    exec_.elements(bytes * scales.elements(),
                   ZeroBytes{scales.as<uint8_t>(), bytes * scales.cols, bytes * scales.stride});
  }

  template <class Codec>
  void rescale_by(const Codec& codec, const EncodedTensor& tensor) {
    const Tensor& scales = tensor.block_scales;
    exec_.rows(scales.rows,
               RowScaleMax{scales.as<uint8_t>(), scales.cols, scales.stride, maxima(scales.rows)});
    reduce_rows(scales.rows);
    const BlockGrid grid{tensor.rows, tensor.cols};
    exec_.blocks(grid.blocks(), RescaleBlock<Codec>{grid, codec, total()});
    exec_.elements(1, RescaleTensor<Codec>{total(), tensor.tensor_scale.as<float>()});
  }

  template <class From, class To>
  void transcode(const EncodedTensor& t, const From& from, const To& to) {
    const BlockGrid grid{t.rows, t.cols};
    exec_.blocks(grid.blocks(), Transcode<From, To>{grid, from, to});
  }

  // Scratch: maxima of up to most_rows rows, then their overall maximum.
  float* maxima(int64_t rows) {
    check(rows < row_maxima_.cols, "scratch for the maxima of {} rows, {} needed",
          row_maxima_.cols - 1, rows);
    return row_maxima_.as<float>();
  }
  float* total() { return row_maxima_.as<float>() + row_maxima_.cols - 1; }
  void reduce_rows(int64_t rows) { exec_.rows(1, LargestOf{maxima(rows), rows, total()}); }

  static void check_shapes(const EncodedTensor& encoded, const Tensor& plain,
                           std::string_view what) {
    check(plain.rows == encoded.rows && plain.cols == encoded.cols,
          "{} of a tensor [{},{}] with a tensor [{},{}]", what, encoded.rows, encoded.cols,
          plain.rows, plain.cols);
  }

  E exec_;
  Tensor row_maxima_;
};

}  // namespace mpt
