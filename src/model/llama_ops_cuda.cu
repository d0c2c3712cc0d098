// LLaMA operations on a CUDA stream: the CPU's formulas in kernels with 16-byte loads and stores.
// Other shapes and alignments use the generic operations.
#include <algorithm>

#include "device/cuda/cuda_exec.cuh"
#include "model/cuda/computed_casts.cuh"
#include "model/cuda/cross_entropy.cuh"
#include "model/cuda/elementwise.cuh"
#include "model/cuda/embedding.cuh"
#include "model/cuda/gradient_casts.cuh"
#include "model/cuda/rms_norm.cuh"
#include "model/llama_ops_on.h"
#include "precision/dispatch.h"

namespace mpt {
namespace {

int64_t shared_memory_of_a_block() {
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute(MaxSharedMemoryPerBlockOptin)");
  return bytes;
}

class CudaLlamaOps final : public LlamaOpsOn<CudaExec> {
  using Generic = LlamaOpsOn<CudaExec>;

 public:
  // Without a stream, it only plans and needs no GPU.
  explicit CudaLlamaOps(cudaStream_t stream) : Generic(CudaExec{stream}) {
    if (stream == nullptr) return;
    longest_row_bytes_ = shared_memory_of_a_block() - kStaticShared;
    for (const auto kernel :
         {cross_entropy_kernel<float, kPackOf<float>>, cross_entropy_kernel<float, 1>})
      give_shared_memory(kernel);
    for (const auto kernel :
         {cross_entropy_kernel<bf16, kPackOf<bf16>>, cross_entropy_kernel<bf16, 1>})
      give_shared_memory(kernel);
  }

  void zero(const Tensor& tensor) override {
    check(tensor.contiguous(), "zero needs a contiguous tensor");
    if (tensor.elements() == 0) return;
    check_cuda(cudaMemsetAsync(tensor.data, 0, size_t(tensor.elements() * size_of(tensor.dtype)),
                               exec_.stream),
               "cudaMemsetAsync");
  }

  void embedding_forward(const Tensor& table, const Tensor& tokens, const Tensor& out) override {
    const bool fast = dispatch(table.dtype, [&]<class T>(T) {
      if (!packable(out.cols, kPackOf<T>, {table, out})) return false;
      exec_.elements(
          out.elements() / kPackOf<T>,
          EmbeddingForwardPacks<T>{{table.as<T>(), tokens.as<int32_t>(), out.as<T>(), out.cols}});
      return true;
    });
    if (!fast) Generic::embedding_forward(table, tokens, out);
  }

  void embedding_backward(const EmbeddingBackwardCall& call) override {
    const bool fast = dispatch(call.d_out.dtype, [&]<class T>(T) {
      if (!packable(call.d_table.cols, kPackOf<T>, {call.d_out, call.d_table})) return false;
      dispatch(call.d_table.dtype, [&]<class D>(D) {
        embedding_backward_packs(
            EmbeddingBackward<T, D>{call.d_out.as<T>(), call.first.as<int32_t>(),
                                    call.uses.as<int32_t>(), call.d_table.as<D>(),
                                    call.d_table.cols, keep(call.accumulate)},
            call);
      });
      return true;
    });
    if (!fast) Generic::embedding_backward(call);
  }

  void norm_forward(const NormForwardCall& call) override {
    bool fast = false;
    dispatch_output(call.residual.dtype, call.out.dtype, [&]<class T, class Out>(T, Out) {
      if (call.out.rows == 0)
        fast = norm_forward_rows<T>(call, NoStore{});
      else
        fast = norm_forward_rows<T>(call,
                                    RowStore<Out>{call.out.as<Out>(), call.out.cols / kPackOf<T>});
    });
    if (!fast) Generic::norm_forward(call);
  }

  void norm_forward_and_cast(const NormForwardCall& call, const Fp8CastCall& cast) override {
    check_written(call.residual, cast);
    if (call.residual.dtype != DType::kBF16 || !packable_rows<bf16>(call) ||
        !norm_forward_and_cast_rows(exec_.stream, forward_rows<bf16>(call), cast))
      Generic::norm_forward_and_cast(call, cast);
  }

  [[nodiscard]] int64_t norm_chunks(int64_t n) const override {
    return std::min((n + kFewestRows - 1) / kFewestRows, kMostChunks);
  }

  void norm_backward(const NormBackwardCall& call) override {
    const bool fast = dispatch(call.x.dtype, [&]<class T>(T) {
      if (!packable_rows<T>(call)) return false;
      const NormBackwardRows<T> n = backward_rows<T>(call);
      return with_row_team(n.cols / kPackOf<T>, [&]<int kWarps, int kPacks> {
        launch(norm_backward_kernel<T, RowByRow<NoStore>, kWarps, kPacks>,
               shape(n.chunks(), RowTeam<kWarps>::kThreads), n, RowByRow<NoStore>{});
      });
    });
    if (!fast) norm_backward_rows(call, rows_per_chunk(call.x.rows));
    sum_gain_gradient(call);
  }

  void norm_backward_and_cast(const NormBackwardCall& call, const Fp8CastCall& cast) override {
    check_written(call.d_x, cast);
    if (call.x.dtype == DType::kBF16 && packable_rows<bf16>(call) &&
        norm_backward_and_cast_rows(exec_.stream, backward_rows<bf16>(call), cast))
      sum_gain_gradient(call);
    else
      Generic::norm_backward_and_cast(call, cast);
  }

  void rope(const RopeCall& call) override {
    const bool fast = dispatch(call.qkv.dtype, [&]<class T>(T) {
      constexpr int kWidth = kPackOf<T>;
      if (call.head_dim % (2 * kWidth) != 0 || call.rotated_heads % 2 != 0 ||
          !packable(call.qkv.stride, kWidth, {call.qkv}) ||
          !packable(call.cosine.cols, kWidth, {call.cosine, call.sine}))
        return false;
      const RopePacks<T> packs{rope_of<T>(call)};
      exec_.elements(call.qkv.rows * packs.items(), packs);
      return true;
    });
    if (!fast) Generic::rope(call);
  }

  void swiglu_forward(const Tensor& gate_up, const Tensor& out) override {
    bool fast = false;
    dispatch_output(gate_up.dtype, out.dtype, [&]<class T, class Out>(T, Out) {
      if (!packable(out.cols, kPackOf<T>, {gate_up, out})) return;
      using Store = RowStore<Out>;
      exec_.elements(out.elements() / kPackOf<T>,
                     SwigluForwardPacks<T, Store>{gate_up.as<T>(), out.cols,
                                                  Store{out.as<Out>(), out.cols / kPackOf<T>}});
      fast = true;
    });
    if (!fast) Generic::swiglu_forward(gate_up, out);
  }

  void swiglu_backward(const Tensor& gate_up, const Tensor& d_out) override {
    const bool fast = dispatch(d_out.dtype, [&]<class T>(T) {
      if (!packable(d_out.cols, kPackOf<T>, {gate_up, d_out})) return false;
      exec_.elements(d_out.elements() / kPackOf<T>,
                     SwigluBackwardPacks<T>{{gate_up.as<T>(), d_out.as<T>(), d_out.cols}});
      return true;
    });
    if (!fast) Generic::swiglu_backward(gate_up, d_out);
  }

  void rope_and_cast(const RopeCall& call, const Fp8CastCall& cast) override {
    check_written(call.qkv, cast);
    if (!cast_rotated(exec_.stream, call, cast)) Generic::rope_and_cast(call, cast);
  }

  void swiglu_backward_and_cast(const Tensor& gate_up, const Tensor& d_out,
                                const Fp8CastCall& cast) override {
    check_written(gate_up, cast);
    if (!cast_swiglu_gradient(exec_.stream, gate_up, d_out, cast))
      Generic::swiglu_backward_and_cast(gate_up, d_out, cast);
  }

  void cast(const ComputedInput& input, const Fp8CastCall& call) override {
    if (!cast_packed(exec_.stream, input, call)) Generic::cast(input, call);
  }

  void gather_amax(const ComputedInput& input, const Fp8CastCall& call) override {
    if (!gather_amax_packed(exec_.stream, input, call)) Generic::gather_amax(input, call);
  }

  void cross_entropy(const CrossEntropyCall& call) override {
    const int64_t cols = call.logits.cols, row_bytes = cols * size_of(call.logits.dtype);
    if (row_bytes > longest_row_bytes_) return Generic::cross_entropy(call);
    dispatch(call.logits.dtype, [&]<class T>(T) {
      const CrossEntropy<T> rows{call.logits.as<T>(),     call.targets.as<int32_t>(),
                                 call.losses.as<float>(), cols,
                                 call.gradient_scale,     call.z_loss};
      LaunchShape each_row = shape(call.logits.rows, CrossEntropyTeam::kThreads);
      each_row.shared_bytes = row_bytes;
      launch(packable(cols, kPackOf<T>, {call.logits}) ? cross_entropy_kernel<T, kPackOf<T>>
                                                       : cross_entropy_kernel<T, 1>,
             each_row, rows);
    });
  }

  void sum_losses(const Tensor& losses, const Tensor& sum) override {
    constexpr int kThreads = 1024;
    launch(sum_losses_kernel<kThreads>, shape(1, kThreads),
           SumLosses{losses.as<float>(), losses.elements(), sum.as<double>()});
  }

  void round_to_bf16(const Tensor& tensor) override {
    check(tensor.dtype == DType::kF32 && tensor.contiguous(),
          "round_to_bf16 needs a contiguous fp32 tensor");
    if (!packable(0, 1, {tensor})) return Generic::round_to_bf16(tensor);
    constexpr int kWidth = RoundPacksToBf16::kWidth;
    exec_.elements((tensor.elements() + kWidth - 1) / kWidth,
                   RoundPacksToBf16{tensor.as<float>(), tensor.elements()});
  }

 protected:
  void cast_written(const Tensor& written, const Fp8CastCall& call) override {
    check_written(written, call);
    if (!cast_packed_rows(exec_.stream, written, call)) Generic::cast_written(written, call);
  }

 private:
  // Chunks of norm_backward: enough blocks for every multiprocessor, few enough that summing their
  // parts is cheap. Chunks are multiples of kFewestRows, the unit in which transposed codes are
  // stored.
  static constexpr int64_t kMostChunks = 2048, kFewestRows = 16;
  // Upper bound on a cross_entropy block's shared memory besides its row: its team's sums.
  static constexpr int64_t kStaticShared = 1024;

  // Allows the maximum per block; the kernel does not need the L1 that this leaves.
  template <class T>
  void give_shared_memory(void (*kernel)(CrossEntropy<T>)) const {
    allow_shared(kernel, longest_row_bytes_);
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
               "cudaFuncSetAttribute(PreferredSharedMemoryCarveout)");
  }
  static int64_t rows_per_chunk(int64_t rows) {
    constexpr int64_t kStep = kMostChunks * kFewestRows;
    return std::max((rows + kStep - 1) / kStep, int64_t{1}) * kFewestRows;
  }
  template <class T>
  static bool packable_rows(const NormBackwardCall& call) {
    return packable(call.x.cols, kPackOf<T>,
                    {call.d_out, call.x, call.gain, call.d_x, call.d_gain_partial});
  }
  template <class T>
  static NormBackwardRows<T> backward_rows(const NormBackwardCall& call) {
    return {call.d_out.as<T>(), call.x.as<T>(),   call.inv_rms.as<float>(),
            call.gain.as<T>(),  call.d_x.as<T>(), call.d_gain_partial.as<float>(),
            call.x.rows,        call.x.cols,      rows_per_chunk(call.x.rows)};
  }
  // Sums over the chunks of rows_per_chunk().
  void sum_gain_gradient(const NormBackwardCall& call) const {
    const int64_t cols = call.x.cols, of_chunk = rows_per_chunk(call.x.rows),
                  chunks = (call.x.rows + of_chunk - 1) / of_chunk;
    dispatch(call.d_gain.dtype, [&]<class D>(D) {
      launch(gain_gradient_kernel<D>, shape((cols + kSumColumns - 1) / kSumColumns, kSumThreads),
             gain_gradient<D>(call, chunks));
    });
  }
  template <class T>
  static bool packable_rows(const NormForwardCall& call) {
    return packable(call.residual.cols, kPackOf<T>,
                    {call.residual, call.branch, call.sum, call.out, call.gain});
  }
  template <class T>
  static NormForwardRows<T> forward_rows(const NormForwardCall& call) {
    return {
        call.residual.as<T>(), call.branch.as<T>(), call.sum.as<T>(),   call.inv_rms.as<float>(),
        call.gain.as<T>(),     call.residual.rows,  call.residual.cols, call.eps};
  }
  template <class T, class Sink>
  [[nodiscard]] bool norm_forward_rows(const NormForwardCall& call, const Sink& sink) const {
    if (!packable_rows<T>(call)) return false;
    const NormForwardRows<T> n = forward_rows<T>(call);
    return with_row_team(n.cols / kPackOf<T>, [&]<int kWarps, int kPacks> {
      using Team = RowTeam<kWarps>;
      launch(norm_forward_kernel<T, RowByRow<Sink>, kWarps, kPacks>,
             shape(Team::blocks_for(n.rows), Team::kThreads), n, RowByRow<Sink>{sink});
    });
  }
  template <class T, class D>
  void embedding_backward_packs(const EmbeddingBackward<T, D>& rows,
                                const EmbeddingBackwardCall& call) const {
    const int64_t packs = rows.cols / kPackOf<T>, vocabulary = call.d_table.rows,
                  uses = call.uses.elements();
    const int64_t slices = (packs + WarpGroup::kLanes - 1) / WarpGroup::kLanes;
    exec_.rows(vocabulary * slices, EmbeddingBackwardSlices<T, D>{rows, slices});
    const int64_t windows = (uses + kLongRun - 1) / kLongRun,
                  run_slices = (packs + kRunLanes - 1) / kRunLanes;
    launch(embedding_backward_long_kernel<T, D>, shape(windows * run_slices, kRunThreads), rows,
           vocabulary, run_slices);
  }
  [[nodiscard]] LaunchShape shape(int64_t blocks, int threads) const {
    return {.blocks = blocks, .threads = threads, .stream = exec_.stream};
  }

  int64_t longest_row_bytes_ = 0;  // bytes of the longest row of logits
};

std::unique_ptr<LlamaOps> make(StreamRef stream, const LlamaOps::Options& options) {
  if (options.kernels == LlamaKernels::kTuned)
    return std::make_unique<CudaLlamaOps>(stream_of(stream));
  return std::make_unique<LlamaOpsOn<CudaExec>>(CudaExec{stream_of(stream)});
}
const RegisterCudaOps<LlamaOps> registered{make};

}  // namespace

}  // namespace mpt
