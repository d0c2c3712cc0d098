// The bound of an FP32 training step with AdamW: the time for its GEMMs, its attention and the
// memory traffic of its other operations, with nothing in between. An estimate, not a law: a pass
// whose data are in a cache can be faster than memory, as a step faster than its bound shows.
//
//   bound = GEMMs + attention + passes
//
// GEMMs      every GemmCall of one step, recorded as the step makes them and run again in that
//            order. Operands lie one after another in memory that exceeds every cache, results in
//            another such memory, and the position advances from call to call: each call finds its
//            operands in memory, as in the step.
// attention  14 D FLOP for each pair of a query and a key that it sees, B H T (T + 1) / 2 of them
//            in each of L layers, at the FP32 rate of a GEMM of 1024^3, also measured between the
//            steps. 14 = 2 (multiply, add) x 7 GEMMs: S = Q K^T, O = P V; S again, dV = P^T dO,
//            dP = dO V^T, dQ = dS K, dK = dS^T Q.
// passes     least bytes that each pass must move, at the rate of memory read and written in place.
//            In elements of 4 bytes, where a pass reads its inputs and writes its outputs once:
//
//   embedding          N C + min(N, V) C           rows of the table that are used, and the output
//   RMSNorm            2 N C + 2 L 4 N C           in, out; residual, branch, sum, out
//   RoPE               L 4 N C                     Q and K in place
//   SwiGLU             L 3 N F                     gate, up, out
//   cross entropy      2 N V                       logits, their gradients in place of them
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

// FLOPs of attention, forward and backward, as defined above.
double attention_flops(const LlamaConfig& config, int64_t tokens, int64_t seq_len);

// A device that records the GEMMs requested from it.
class RecordingDevice final : public ForwardingDevice {
 public:
  // `inner` must outlive this object.
  explicit RecordingDevice(Device& inner) : ForwardingDevice(inner), gemm_(inner.gemm()) {}
  Gemm& gemm() override { return gemm_; }
  // Returns the calls since the last take_gemms().
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

// An FP32 GEMM of 1024^3 multiplications, without operands.
GemmCall large_gemm();

// Memory on which to run FP32 GEMMs with cold operands.
class ColdGemms {
 public:
  // Allocates memory for these calls. The device must outlive this object.
  ColdGemms(Device& device, std::span<const GemmCall> calls);
  // Runs GEMMs with the shapes and strides of `calls`, whose own tensors are not touched: by the
  // device, or by another library on the same memory.
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
