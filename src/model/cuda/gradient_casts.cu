#include <limits>

#include "model/cuda/gradient_casts.cuh"
#include "model/cuda/rotated_gradient.cuh"
#include "model/cuda/row_codes.cuh"
#include "model/cuda/swiglu_gradient.cuh"

namespace mpt {
namespace {

constexpr DType kGradients = DType::kE5M2;  // the format of all gradients here

Tensor columns_if_any(const Tensor& t, int64_t first, int64_t count) {
  return t.rows == 0 ? t : t.columns(first, count);
}
Tensor rows_if_any(const Tensor& t, int64_t first, int64_t count) {
  return t.rows == 0 ? t : t.row_range(first, count);
}

}  // namespace

bool cast_swiglu_gradient(cudaStream_t stream, const Tensor& gate_up, const Tensor& d_out,
                          const Fp8CastCall& call) {
  const int64_t rows = d_out.rows, cols = d_out.cols;
  if (call.format() != kGradients || gate_up.dtype != DType::kBF16 || !gate_up.contiguous() ||
      !d_out.contiguous() || !packable(cols, kPackOf<bf16>, {gate_up, d_out}))
    return false;
  check_targets(call);
  const auto targets = [&](int64_t first) {
    return TileTargets::of(rows, columns_if_any(call.target, first, cols),
                           rows_if_any(call.transposed, first, cols));
  };
  const SwigluGradientTiles<kGradients> tiles{
      .source = {gate_up.as<bf16>(), d_out.as<bf16>(), cols},
      .grid = {rows, cols},
      .ends = Fp8CastEnds::of(call),
      .gate = targets(0),
      .up = targets(cols)};
  launch(swiglu_gradient_kernel<kGradients>,
         {.blocks = TilePlace::count(tiles.grid), .threads = kThreadsPerBlock, .stream = stream},
         tiles);
  return true;
}

bool cast_rotated(cudaStream_t stream, const RopeCall& rope, const Fp8CastCall& call) {
  constexpr int64_t kMostTokens = std::numeric_limits<uint32_t>::max();
  const Tensor& qkv = rope.qkv;
  if (call.format() != kGradients || qkv.dtype != DType::kBF16 || qkv.rows > kMostTokens ||
      rope.head_dim % (2 * kLaneCodes) != 0 || !packable(qkv.stride, kPackOf<bf16>, {qkv}) ||
      !packable(rope.cosine.cols, kPackOf<float>, {rope.cosine, rope.sine}))
    return false;
  const PackedRotation source{.qkv = qkv.as<bf16>(),
                              .stride = qkv.stride,
                              .cosine = rope.cosine.as<float>(),
                              .sine = rope.sine.as<float>(),
                              .rotated = int(rope.rotated_heads * rope.head_dim),
                              .head_dim = int(rope.head_dim),
                              .seq_len = uint32_t(rope.seq_len),
                              .first_position = uint32_t(rope.first_position),
                              .direction = rope.direction,
                              .document_begin = rope.document_begin.as<int32_t>()};
  cast_tiles_to<kGradients>(
      stream, Fp8Source<PackedRotation>{{qkv.rows, qkv.cols}, source, Format::kF32}, call);
  return true;
}

bool norm_backward_and_cast_rows(cudaStream_t stream, const NormBackwardRows<bf16>& n,
                                 const Fp8CastCall& call) {
  using Codes = RowCodes<kGradients>;
  if (call.format() != kGradients || n.rows_per_chunk % kRun != 0) return false;
  const Codes codes = Codes::of(call);
  if (!codes.fits(n.cols)) return false;
  check_targets(call);
  return with_row_team(n.cols / kPackOf<bf16>, [&]<int kWarps, int kPacks> {
    launch(norm_backward_kernel<bf16, Codes, kWarps, kPacks>,
           {.blocks = n.chunks(),
            .threads = RowTeam<kWarps>::kThreads,
            .stream = stream,
            .shared_bytes = codes.shared_bytes(n.cols)},
           n, codes);
  });
}

bool cast_packed_rows(cudaStream_t stream, const Tensor& values, const Fp8CastCall& call) {
  if (call.format() != kGradients || values.dtype != DType::kBF16 ||
      !is_aligned(values, kPackBytes))
    return false;
  const PackedRows<bf16> rows{values.as<bf16>(), values.stride};
  cast_tiles_to<kGradients>(
      stream, Fp8Source<PackedRows<bf16>>{{values.rows, values.cols}, rows, Format::kF32}, call);
  return true;
}

}  // namespace mpt
