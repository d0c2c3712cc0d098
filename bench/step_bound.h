// The bound of an FP32 training step with AdamW: the time that its GEMMs, its attention and what
// its other operations must move take, with nothing in between. An estimate, not a law: a pass
// whose data are in a cache can be faster than memory, and a step that is better than its bound
// shows that.
//
//   bound = GEMMs + attention + passes
//
// GEMMs   every GemmCall of one step, recorded as the step makes them and run again in that order.
//            Operands lie one behind the other in memory that no cache holds, results in other such memory,
//            and the place moves on from call to call: each finds its operands in memory, as in the step.
// attention  14 D FLOP for each pair of a query and a key that it sees, B H T (T + 1) / 2 of them in each
//            of L layers, at the FP32 rate of a GEMM of 1024^3, measured between the steps as well.
//            14 = 2 (multiply, add) x 7 GEMMs: S = Q K^T, O = P V; S again, dV = P^T dO, dP = dO V^T,
//            dQ = dS K, dK = dS^T Q.
// passes     bytes that each must move at least, at the rate of memory read and written in place. In
//            elements of 4 bytes, where a pass reads its inputs and writes its outputs once:
//
//   embedding          N C + min(N, V) C           rows of the table that are used, and the output
//   RMSNorm            2 N C + 2 L 4 N C           the first: in, out; others: residual, branch, sum, out
//   RoPE               L 4 N C                     Q and K in place
//   SwiGLU             L 3 N F                     gate, up, out
//   cross entropy      2 N V                       logits, their gradients in their place
//   zero               N C                         gradient of the residual stream
//   RMSNorm backward   (2 L + 1) 4 N C             d_out, x, d_x in place
//   SwiGLU backward    L 5 N F                     gate and up in place, d_out
//   RoPE backward      L 4 N C
//   embedding backward N C + V C                   d_out, all rows of the table's gradient
//   gradient norm      P
//   AdamW              7 P                         w, m, v in place, gradient
//
// N = B T tokens, C hidden, L layers, H heads, D = C / H, F stored MLP width, V vocabulary, P
// parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/profiling.h"
#include "model/llama_config.h"

namespace mpt {

struct PassBytes {
  std::string pass;
  double bytes;
};
std::vector<PassBytes> fused_passes(const LlamaConfig& config, int64_t tokens);

// FLOPs of attention, forward and backward, as above.
double attention_flops(const LlamaConfig& config, int64_t tokens, int64_t seq_len);

// A device that notes the GEMMs which it is asked for.
class RecordingDevice final : public ForwardingDevice {
 public:
  // `inner` outlives this.
  explicit RecordingDevice(Device& inner) : ForwardingDevice(inner), gemm_(inner.gemm()) {}
  Gemm& gemm() override { return gemm_; }
  // Those since the last time.
  std::vector<GemmCall> take_gemms() { return std::exchange(gemm_.calls, {}); }

 private:
  struct RecordingGemm final : Gemm {
    explicit RecordingGemm(Gemm& of) : inner(of) {}
    void reserve(Allocator& allocator, std::span<const GemmCall> sizes) override {
      inner.reserve(allocator, sizes);
    }
    void run(const GemmCall& call) override {
      calls.push_back(call);
      inner.run(call);
    }
    [[nodiscard]] Fp8Layout fp8_layout() const override { return inner.fp8_layout(); }

    Gemm& inner;
    std::vector<GemmCall> calls;
  };
  RecordingGemm gemm_;
};

// An FP32 GEMM of 1024^3 multiplications, whose operands are not there.
GemmCall large_gemm();

// Memory for FP32 GEMMs to be run on, which they find cold.
class ColdGemms {
 public:
  // For these calls. The device outlives this.
  ColdGemms(Device& device, std::span<const GemmCall> calls);
  // Runs GEMMs of the shapes and strides of `calls`, whose own tensors are not touched: the
  // device's, or those of another library on the same memory.
  double seconds(std::span<const GemmCall> calls) { return seconds(calls, device_.gemm()); }
  double seconds(std::span<const GemmCall> calls, Gemm& gemm);

 private:
  // Memory that is handed out in turn.
  struct Ring {
    Tensor memory{};
    int64_t next = 0;
    Tensor place_for(const Tensor& shape);
  };

  Device& device_;
  std::unique_ptr<Allocator> allocator_;
  Ring operands_, results_;
};

}  // namespace mpt
