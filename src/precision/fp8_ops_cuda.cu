// Fp8Ops on a CUDA stream. Bit-identical to the CPU.
#include "precision/fp8_cast.cuh"
#include "precision/fp8_ops.h"

namespace mpt {
namespace {

// A thread block rolls one slot per lane of a warp. It walks the history in steps of kRollRows
// amaxes per slot, kRollAtOnce per thread.
constexpr int kRollAtOnce = 8;
constexpr int kRollRows = kWarps * kRollAtOnce;

__global__ void __launch_bounds__(kThreadsPerBlock) roll_kernel(RollSlot roll) {
  constexpr int kLanes = WarpGroup::kLanes;
  __shared__ float of_warp[kWarps][kLanes];
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            warp = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t slot = int64_t{blockIdx.x} * kLanes + lane;
  const bool mine = slot < roll.slots;
  const float last = mine ? roll.history[slot] : 0.0f;
  float older_most = 0.0f;
  for (int64_t first = 1; first < roll.length; first += kRollRows) {
    const int64_t row = first + warp * kRollAtOnce;
    float older[kRollAtOnce];
#pragma unroll
    for (int i = 0; i < kRollAtOnce; ++i) {
      const bool there = last != 0.0f && row + i < roll.length;
      older[i] = there ? roll.history[(row + i) * roll.slots + slot] : 0.0f;
      older_most = max_of(older[i], older_most);
    }
    __syncthreads();  // this step's reads precede its writes; later reads lie beyond them
#pragma unroll
    for (int i = 0; i < kRollAtOnce; ++i)
      if (last != 0.0f && row + i < roll.length)
        roll.history[(row + i - 1) * roll.slots + slot] = older[i];
  }
  of_warp[warp][lane] = older_most;
  __syncthreads();
  if (warp != 0 || !mine) return;
  for (int other = 1; other < kWarps; ++other)
    older_most = max_of(of_warp[other][lane], older_most);
  if (last != 0.0f) {
    roll.history[(roll.length - 1) * roll.slots + slot] = last;
    roll.history[slot] = 0.0f;
  }
  roll.set_scale(slot, last, last != 0.0f ? max_of(older_most, last) : 0.0f);
}

class CudaFp8Ops final : public Fp8OpsOn<CudaExec> {
 public:
  explicit CudaFp8Ops(cudaStream_t stream) : Fp8OpsOn(CudaExec{stream}), stream_(stream) {}

  void cast(const Fp8CastCall& call) override {
    with_packed_source(call, [&](const auto& source) { cast_tiles(stream_, source, call); });
  }

  void gather_amax(const Fp8CastCall& call) override {
    with_packed_source(call,
                       [&](const auto& source) { gather_amax_of_tiles(stream_, source, call); });
  }

  void roll(const Fp8RollCall& call) override {
    const int64_t blocks = (call.history.cols + WarpGroup::kLanes - 1) / WarpGroup::kLanes;
    launch(roll_kernel, {.blocks = blocks, .threads = kThreadsPerBlock, .stream = stream_},
           RollSlot::of(call));
  }

 private:
  // bf16 values are unchanged by rounding to bf16.
  template <class F>
  static void with_packed_source(const Fp8CastCall& call, const F& f) {
    const Tensor& values = call.source.codes;
    const BlockGrid grid{call.source.rows, call.source.cols};
    const bool packed = !is_scaled(call.source.encoding.format) && is_aligned(values, kPackBytes);
    if (packed && values.dtype == DType::kBF16)
      f(Fp8Source<PackedRows<bf16>>{grid, {values.as<bf16>(), values.stride}, Format::kF32});
    else if (packed && values.dtype == DType::kF32)
      f(Fp8Source<PackedRows<float>>{grid, {values.as<float>(), values.stride}, call.through});
    else
      with_source(call, f);
  }

  cudaStream_t stream_;
};

std::unique_ptr<Fp8Ops> make(StreamRef stream, const Fp8Ops::Options&) {
  return std::make_unique<CudaFp8Ops>(stream_of(stream));
}
const RegisterCudaOps<Fp8Ops> registered{make};

}  // namespace

}  // namespace mpt
