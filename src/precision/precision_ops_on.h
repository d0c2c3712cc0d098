// The operations on encoded weights, once, for any Exec.
#pragma once

#include "device/exec.h"
#include "precision/codecs.h"
#include "precision/largest.h"
#include "precision/precision_ops.h"

namespace mpt {

// most[row]: the maximum of |x| over a row.
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

// most[row]: the largest scale byte of a row.
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

// The tensor's scale of a first encoding, from its amax.
struct FirstTensorScale {
  const float* amax;
  Nvfp4ScaleMode mode;
  float* scale;

  MPT_HD void operator()(int64_t) const {
    *scale = mode == Nvfp4ScaleMode::kSticky ? nvfp4_sticky::first_tensor_scale(*amax) : *amax;
  }
};

struct ZeroBytes {
  uint8_t* data;
  int64_t cols, stride;

  MPT_HD void operator()(int64_t i) const { data[i / cols * stride + i % cols] = 0; }
};

// Decodes with one codec and encodes, to nearest, with another.
template <class From, class To>
struct Transcode {
  UnitGrid grid;
  From from;
  To to;

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    const UnitSpan span = grid.span(unit);
    float x[LanePart<G>::kSize];
    from.load(group, span, x);
    to.store(group, span, x, DitherSource{}.draw(group, span));
  }
};

// The two halves of settling, both of which do nothing unless the largest scale has come too near the top.
MPT_HD bool must_settle(float largest_scale) { return largest_scale > float(nvfp4_sticky::kMostAfterStep); }

struct QuarterScales {
  UnitGrid grid;
  Nvfp4Codec codec;
  const float* largest_scale;

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    if (must_settle(*largest_scale)) codec.quarter_scales(group, grid.span(unit));
  }
};
struct QuadrupleTensorScale {
  const float* largest_scale;
  float* scale;

  MPT_HD void operator()(int64_t) const {
    if (must_settle(*largest_scale)) *scale *= 4.0f;
  }
};

template <Exec E>
class PrecisionOpsOn : public PrecisionOps {
 public:
  PrecisionOpsOn(E exec, Allocator& allocator, int64_t most_rows)
      : exec_(exec), row_maxima_(allocator.tensor(Purpose::kScratch, DType::kF32, 1, most_rows + 1)) {}

  void encode(const Tensor& source, const EncodedTensor& target) override {
    check_shapes(target, source, "encode");
    check(source.dtype == DType::kF32, "encode from {}, fp32 expected", name_of(source.dtype));
    if (target.encoding.format == WeightFormat::kNvfp4) start_nvfp4(source, target);
    with_codec(target, [&](const auto& codec) { transcode(target, ElementCodec(source), codec); });
  }

  void decode(const EncodedTensor& source, const Tensor& target) override {
    check_shapes(source, target, "decode");
    with_codec(source, [&](const auto& codec) { transcode(source, codec, ElementCodec(target)); });
  }

  void settle(const EncodedTensor& tensor) override {
    if (tensor.encoding.format != WeightFormat::kNvfp4) return;
    if (tensor.encoding.nvfp4_scale_mode != Nvfp4ScaleMode::kSticky) return;
    const Tensor& scales = tensor.block_scales;
    exec_.rows(scales.rows,
               RowScaleMax{scales.as<uint8_t>(), scales.cols, scales.stride, maxima(scales.rows)});
    reduce_rows(scales.rows);
    const UnitGrid grid{tensor.rows, tensor.cols};
    exec_.units(grid.units(), QuarterScales{grid, Nvfp4Codec(tensor), total()});
    exec_.elements(1, QuadrupleTensorScale{total(), tensor.tensor_scale.as<float>()});
  }

 private:
  // The tensor's scale from the values, and no block scales: those that sticky encoding would start from.
  void start_nvfp4(const Tensor& source, const EncodedTensor& target) {
    exec_.rows(source.rows, RowAmax{source.as<float>(), source.cols, source.stride, maxima(source.rows)});
    reduce_rows(source.rows);
    exec_.elements(
        1, FirstTensorScale{total(), target.encoding.nvfp4_scale_mode, target.tensor_scale.as<float>()});
    const Tensor& scales = target.block_scales;
    exec_.elements(scales.elements(), ZeroBytes{scales.as<uint8_t>(), scales.cols, scales.stride});
  }

  template <class From, class To>
  void transcode(const EncodedTensor& t, const From& from, const To& to) {
    const UnitGrid grid{t.rows, t.cols};
    exec_.units(grid.units(), Transcode<From, To>{grid, from, to});
  }

  // Scratch: the maxima of up to most_rows rows, then theirs.
  float* maxima(int64_t rows) {
    check(rows < row_maxima_.cols, "scratch for the maxima of {} rows, {} asked for", row_maxima_.cols - 1,
          rows);
    return row_maxima_.as<float>();
  }
  float* total() { return row_maxima_.as<float>() + row_maxima_.cols - 1; }
  void reduce_rows(int64_t rows) { exec_.rows(1, LargestOf{maxima(rows), rows, total()}); }

  static void check_shapes(const EncodedTensor& encoded, const Tensor& plain, std::string_view what) {
    check(plain.rows == encoded.rows && plain.cols == encoded.cols, "{} of [{},{}] with a [{},{}]", what,
          encoded.rows, encoded.cols, plain.rows, plain.cols);
  }

  E exec_;
  Tensor row_maxima_;
};

}  // namespace mpt
