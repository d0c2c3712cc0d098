#include "model/cuda/computed_casts.cuh"
#include "model/cuda/computed_input.cuh"
#include "model/cuda/row_codes.cuh"

namespace mpt {
namespace {

PackedSwiglu packed(const SwigluSource& source) { return {source}; }
PackedNorm packed(const NormSource& source) { return {source}; }

bool is_packed(const ComputedInput& input) {
  if (const auto* swiglu = std::get_if<SwigluInput>(&input))
    return packable(swiglu->gate_up.cols / 2, kPackOf<bf16>, {swiglu->gate_up});
  const auto& norm = std::get<NormInput>(input);
  return packable(norm.x.cols, kPackOf<bf16>, {norm.x, norm.gain});
}

// Calls f(source) with an input read in packs.
template <class F>
bool with_packed(const ComputedInput& input, const Fp8CastCall& call, const F& f) {
  if (!is_packed(input)) return false;
  with_computed(input, call, [&](const auto& rows) { f(fp8_source(packed(rows), call)); });
  return true;
}

}  // namespace

bool cast_packed(cudaStream_t stream, const ComputedInput& input, const Fp8CastCall& call) {
  return with_packed(input, call, [&](const auto& source) { cast_tiles(stream, source, call); });
}

bool gather_amax_packed(cudaStream_t stream, const ComputedInput& input, const Fp8CastCall& call) {
  return with_packed(input, call,
                     [&](const auto& source) { gather_amax_of_tiles(stream, source, call); });
}

bool norm_forward_and_cast_rows(cudaStream_t stream, const NormForwardRows<bf16>& n,
                                const Fp8CastCall& call) {
  using Codes = RowCodes<DType::kE4M3>;
  if (call.format() != DType::kE4M3) return false;
  const Codes codes = Codes::of(call);
  if (!codes.fits(n.cols)) return false;
  check_targets(call);
  return with_row_team(n.cols / kPackOf<bf16>, [&]<int kWarps, int kPacks> {
    launch(norm_forward_kernel<bf16, Codes, kWarps, kPacks>,
           {.blocks = (n.rows + codes.tile_rows - 1) / codes.tile_rows,
            .threads = RowTeam<kWarps>::kThreads,
            .stream = stream,
            .shared_bytes = codes.shared_bytes(n.cols)},
           n, codes);
  });
}

}  // namespace mpt
