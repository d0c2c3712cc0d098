#include "model/cuda/gradient_casts.cuh"
#include "model/cuda/swiglu_gradient.cuh"

namespace mpt {
namespace {

constexpr DType kGradients = DType::kE5M2;  // the format of all of them

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

}  // namespace mpt
