// Every LLaMA operation, written once for any Exec: selects the storage type and passes a formula
// to the backend's loop.
#pragma once

#include "device/exec.h"
#include "model/formulas/cached_attention.h"
#include "model/formulas/computed_input.h"
#include "model/formulas/cross_entropy.h"
#include "model/formulas/embedding.h"
#include "model/formulas/head_norm.h"
#include "model/formulas/rms_norm.h"
#include "model/formulas/rope.h"
#include "model/formulas/swiglu.h"
#include "model/llama_ops.h"
#include "precision/dispatch.h"
#include "precision/format.h"
#include "precision/fp8_ops_on.h"

namespace mpt {

template <class T>
struct Zero {
  T* data;
  MPT_HD void operator()(int64_t i) const { data[i] = T{}; }
};

struct RoundToBf16 {
  float* data;
  MPT_HD void operator()(int64_t i) const { data[i] = rounded_to<bf16>(data[i]); }
};

template <class T>
Rope<T> rope_of(const RopeCall& call) {
  return {.qkv = call.qkv.as<T>(),
          .stride = call.qkv.stride,
          .cosine = call.cosine.as<float>(),
          .sine = call.sine.as<float>(),
          .rotated_heads = call.rotated_heads,
          .head_dim = call.head_dim,
          .seq_len = call.seq_len,
          .first_position = call.first_position,
          .direction = call.direction,
          .document_begin = call.document_begin.as<int32_t>()};
}

template <Exec E>
class LlamaOpsOn : public LlamaOps {
 public:
  explicit LlamaOpsOn(E exec) : exec_(exec) {}

  void zero(const Tensor& tensor) override {
    check(tensor.contiguous(), "zero needs a contiguous tensor");
    dispatch(tensor.dtype,
             [&]<class T>(T) { exec_.elements(tensor.elements(), Zero<T>{tensor.as<T>()}); });
  }

  void embedding_forward(const Tensor& table, const Tensor& tokens, const Tensor& out) override {
    dispatch(table.dtype, [&]<class T>(T) {
      exec_.rows(out.rows,
                 EmbeddingForward<T>{table.as<T>(), tokens.as<int32_t>(), out.as<T>(), out.cols});
    });
  }

  void embedding_backward(const EmbeddingBackwardCall& call) override {
    dispatch(call.d_out.dtype, [&]<class T>(T) {
      dispatch(call.d_table.dtype, [&]<class D>(D) {
        exec_.rows(call.d_table.rows,
                   EmbeddingBackward<T, D>{call.d_out.as<T>(), call.first.as<int32_t>(),
                                           call.uses.as<int32_t>(), call.d_table.as<D>(),
                                           call.d_table.cols, keep(call.accumulate)});
      });
    });
  }

  void find_first_uses(const Tensor& tokens, const Tensor& uses, const Tensor& first) override {
    exec_.elements(first.elements(), FindFirstUses{tokens.as<int32_t>(), uses.as<int32_t>(),
                                                   uses.elements(), first.as<int32_t>()});
  }

  void norm_forward(const NormForwardCall& call) override {
    dispatch_output(call.residual.dtype, call.out.dtype, [&]<class T, class Out>(T, Out) {
      exec_.rows(
          call.residual.rows,
          AddRmsNormForward<T, Out>{call.residual.as<T>(), call.branch.as<T>(), call.sum.as<T>(),
                                    call.out.as<Out>(), call.inv_rms.as<float>(), call.gain.as<T>(),
                                    call.residual.cols, call.eps});
    });
  }

  [[nodiscard]] int64_t norm_chunks(int64_t n) const override {
    return (n + kNormRowsPerChunk - 1) / kNormRowsPerChunk;
  }

  void norm_backward(const NormBackwardCall& call) override {
    norm_backward_rows(call, kNormRowsPerChunk);
    dispatch(call.d_gain.dtype, [&]<class D>(D) {
      exec_.elements(call.x.cols, gain_gradient<D>(call, norm_chunks(call.x.rows)));
    });
  }

  void head_norm_forward(const HeadNormForwardCall& call) override {
    dispatch(call.qkv.dtype, [&]<class T>(T) {
      exec_.rows(call.qkv.rows,
                 HeadNormForward<T>{call.qkv.as<T>(), call.qkv.stride, call.before.as<T>(),
                                    call.inv_rms.as<float>(), call.query_gain.as<T>(),
                                    call.key_gain.as<T>(), call.query_heads, call.inv_rms.cols,
                                    call.query_gain.cols, call.eps});
    });
  }

  void head_norm_backward(const HeadNormBackwardCall& call) override {
    const int64_t tokens = call.d_qkv.rows, most = norm_chunks(tokens),
                  per_chunk = (tokens + most - 1) / most,
                  chunks = (tokens + per_chunk - 1) / per_chunk;
    dispatch(call.d_qkv.dtype, [&]<class T>(T) {
      exec_.rows(chunks,
                 HeadNormBackward<T>{call.d_qkv.as<T>(), call.d_qkv.stride, call.before.as<T>(),
                                     call.inv_rms.as<float>(), call.query_gain.as<T>(),
                                     call.key_gain.as<T>(), call.d_query_partial.as<float>(),
                                     call.d_key_partial.as<float>(), call.query_heads,
                                     call.inv_rms.cols, call.query_gain.cols, tokens, per_chunk});
    });
    const auto sum = [&](const Tensor& partial, const Tensor& d_gain) {
      dispatch(d_gain.dtype, [&]<class D>(D) {
        exec_.elements(d_gain.cols, GainGradient<D>{partial.as<float>(), d_gain.as<D>(), chunks,
                                                    d_gain.cols, keep(call.accumulate)});
      });
    };
    sum(call.d_query_partial, call.d_query_gain);
    sum(call.d_key_partial, call.d_key_gain);
  }

  void rope(const RopeCall& call) override {
    dispatch(call.qkv.dtype, [&]<class T>(T) { exec_.rows(call.qkv.rows, rope_of<T>(call)); });
  }

  void swiglu_forward(const Tensor& gate_up, const Tensor& out) override {
    dispatch_output(gate_up.dtype, out.dtype, [&]<class T, class Out>(T, Out) {
      exec_.rows(out.rows, SwigluForward<T, Out>{gate_up.as<T>(), out.as<Out>(), out.cols});
    });
  }

  void swiglu_backward(const Tensor& gate_up, const Tensor& d_out) override {
    dispatch(d_out.dtype, [&]<class T>(T) {
      exec_.rows(d_out.rows, SwigluBackward<T>{gate_up.as<T>(), d_out.as<T>(), d_out.cols});
    });
  }

  void norm_forward_and_cast(const NormForwardCall& call, const Fp8CastCall& to) override {
    check(call.out.rows == 0, "a norm that is stored and cast");
    norm_forward(call);
    const Tensor& x = call.branch.data == nullptr ? call.residual : call.sum;
    cast(NormInput{.x = x, .inv_rms = call.inv_rms, .gain = call.gain}, to);
  }

  void rope_and_cast(const RopeCall& call, const Fp8CastCall& cast) override {
    rope(call);
    cast_written(call.qkv, cast);
  }

  void swiglu_backward_and_cast(const Tensor& gate_up, const Tensor& d_out,
                                const Fp8CastCall& cast) override {
    swiglu_backward(gate_up, d_out);
    cast_written(gate_up, cast);
  }

  void norm_backward_and_cast(const NormBackwardCall& call, const Fp8CastCall& cast) override {
    norm_backward(call);
    cast_written(call.d_x, cast);
  }

  void cast(const ComputedInput& input, const Fp8CastCall& call) override {
    with_computed(input, call,
                  [&](const auto& rows) { cast_blocks(exec_, fp8_source(rows, call), call); });
  }

  void gather_amax(const ComputedInput& input, const Fp8CastCall& call) override {
    with_computed(input, call, [&](const auto& rows) {
      gather_amax_of_blocks(exec_, fp8_source(rows, call), call);
    });
  }

  void cross_entropy(const CrossEntropyCall& call) override {
    dispatch(call.logits.dtype, [&]<class T>(T) {
      exec_.rows(call.logits.rows, CrossEntropy<T>{call.logits.as<T>(), call.targets.as<int32_t>(),
                                                   call.losses.as<float>(), call.logits.cols,
                                                   call.gradient_scale, call.z_loss});
    });
  }

  void sum_losses(const Tensor& losses, const Tensor& sum) override {
    exec_.rows(1, SumLosses{losses.as<float>(), losses.elements(), sum.as<double>()});
  }

  void cached_attention(const CachedAttentionCall& call) override {
    dispatch(call.qkv.dtype, [&]<class T>(T) {
      exec_.rows(
          call.key_value_heads,
          CachedAttention<T>{call.qkv.as<T>(), call.keys.as<T>(), call.values.as<T>(),
                             call.scores.as<float>(), call.out.as<T>(), call.heads,
                             call.key_value_heads, call.head_dim, call.past, call.scores.cols});
    });
  }

  void round_to_bf16(const Tensor& tensor) override {
    check(tensor.dtype == DType::kF32 && tensor.contiguous(),
          "round_to_bf16 needs a contiguous fp32 tensor");
    exec_.elements(tensor.elements(), RoundToBf16{tensor.as<float>()});
  }

 protected:
  // Casts the output that an operation has just written.
  virtual void cast_written(const Tensor& written, const Fp8CastCall& call) {
    check_written(written, call);
    cast_blocks(exec_, fp8_source(ElementCodec(written), call), call);
  }
  static void check_written(const Tensor& written, const Fp8CastCall& call) {
    check(written.rows == call.source.rows && written.cols == call.source.cols,
          "cast of [{},{}] from an operation that writes [{},{}]", call.source.rows,
          call.source.cols, written.rows, written.cols);
  }
  // Calls f with the output's type: the storage type or fp32. An omitted output counts as fp32.
  template <class F>
  static void dispatch_output(DType storage, DType out, const F& f) {
    check(out == storage || out == DType::kF32, "unsupported result in {} from storage in {}",
          name_of(out), name_of(storage));
    dispatch(storage, [&]<class T>(T t) { out == storage ? f(t, t) : f(t, float{}); });
  }
  // norm_backward without the sum of the gain's gradient over chunks.
  void norm_backward_rows(const NormBackwardCall& call, int64_t rows_per_chunk) const {
    const int64_t rows = call.x.rows;
    dispatch(call.x.dtype, [&]<class T>(T) {
      exec_.rows(
          (rows + rows_per_chunk - 1) / rows_per_chunk,
          RmsNormBackward<T>{call.d_out.as<T>(), call.x.as<T>(), call.inv_rms.as<float>(),
                             call.gain.as<T>(), call.d_x.as<T>(), call.d_gain_partial.as<float>(),
                             rows, call.x.cols, rows_per_chunk});
    });
  }
  template <class D>
  static GainGradient<D> gain_gradient(const NormBackwardCall& call, int64_t chunks) {
    return {call.d_gain_partial.as<float>(), call.d_gain.as<D>(), chunks, call.x.cols,
            keep(call.accumulate)};
  }
  static float keep(Accumulate accumulate) { return accumulate == Accumulate::kYes ? 1.0f : 0.0f; }

  static constexpr int64_t kNormRowsPerChunk = 64;

  E exec_;
};

}  // namespace mpt
