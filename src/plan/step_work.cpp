#include "plan/step_work.h"

#include <array>

#include "model/activations.h"
#include "model/parameters.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

// Legend, per token: C hidden, Q all query heads, K all key heads, F stored MLP width, V
// vocabulary, L layers; s bytes per element of the storage type, and 1 per FP8 code.
class Counter {
 public:
  Counter(const LlamaConfig& config, const PrecisionConfig& precision, int64_t seq_len)
      : config_(config),
        precision_(precision),
        seq_len_(seq_len),
        fp8_(precision.compute == ComputeFormat::kFp8),
        ahead_(fp8_ && precision.fp8_recipe == Fp8Recipe::kDelayed),
        layers_(config.num_hidden_layers),
        c_(double(config.hidden_size)),
        q_(double(config.query_width())),
        k_(double(config.key_value_width())),
        f_(double(padded_intermediate_size(config))),
        v_(double(config.vocab_size)),
        s_(double(size_of(activation_dtype(precision.compute)))) {}

  StepWork count() {
    count_gemms();
    count_attention();
    count_forward();
    count_loss();
    count_backward();
    count_weights();
    return std::move(work_);
  }

 private:
  // --- GEMMs and attention -----------------------------------------------------------------------

  void add_linear(const std::string& linear, int64_t calls, double in, double out, bool fp8) {
    const ComputeFormat format =
        fp8 ? ComputeFormat::kFp8 : (fp8_ ? ComputeFormat::kBF16 : precision_.compute);
    const auto add = [&](const char* product, double inner) {
      work_.gemms.push_back({.linear = linear,
                             .product = product,
                             .calls = calls,
                             .inner = int64_t(inner),
                             .format = format,
                             .flops = 2 * in * out * double(calls)});
    };
    add("y", in), add("dW", 0), add("dx", out);
  }

  void count_gemms() {
    add_linear("qkv", layers_, c_, q_ + 2 * k_, fp8_);
    add_linear("o", layers_, q_, c_, fp8_);
    add_linear("gate_up", layers_, c_, 2 * f_, fp8_);
    add_linear("down", layers_, f_, c_, fp8_);
    add_linear("lm_head", 1, c_, v_, fp8_ && precision_.fp8_lm_head);
  }

  // Two GEMMs in forward and five in backward, over half of the square.
  void count_attention() {
    const double product = 2 * q_ * double(seq_len_ + 1) / 2 * double(layers_);
    work_.attention_forward = 2 * product;
    work_.attention_backward = 5 * product;
  }

  // --- passes ------------------------------------------------------------------------------------

  // Bytes of one call.
  struct Bytes {
    double read = 0, written = 0, transposed = 0;
  };

  void add(std::string operation, std::string what, int64_t calls, const Bytes& bytes) {
    const auto n = double(calls);
    work_.passes.push_back({.operation = std::move(operation),
                            .what = std::move(what),
                            .calls = calls,
                            .read = n * bytes.read,
                            .written = n * bytes.written,
                            .transposed = n * bytes.transposed});
  }

  // With current scaling, a source is read once more beforehand, for its maximum.
  [[nodiscard]] Bytes cast(double source, double codes, double transposed) const {
    const bool twice = precision_.fp8_recipe == Fp8Recipe::kCurrent;
    return {.read = source * (twice ? 2 : 1), .written = codes, .transposed = transposed};
  }

  // Reads the residual and the branch of the previous half, and writes their sum; there is none
  // before the first. In FP8 it also writes codes, unless their scale is not known yet: then a
  // separate cast reads the sum.
  void add_norms(const std::string& what, int64_t calls, int64_t added, bool fp8) {
    const double out = fp8 ? (ahead_ ? c_ : 0) : s_ * c_;
    add("forward/RMSNorm", what, calls,
        {.read = double(1 + added) * s_ * c_,
         .written = double(added) * s_ * c_ + out,
         .transposed = fp8 && ahead_ ? c_ : 0});
    if (fp8 && !ahead_) add("forward/RMSNorm/FP8 casts", what, calls, cast(s_ * c_, c_, c_));
  }

  void count_forward() {
    add("forward/embedding", "", 1, {.read = s_ * c_, .written = s_ * c_});
    add_norms("the first", 1, 0, fp8_);
    add_norms("of layers", 2 * layers_ - 1, 1, fp8_);
    const double rotated = s_ * (q_ + k_);
    if (config_.qk_norm)
      add("forward/RMSNorm of heads", "", layers_, {.read = rotated, .written = 2 * rotated});
    add("forward/RoPE", "", layers_, {.read = rotated, .written = rotated});
    if (fp8_) {
      add("forward/FP8 casts", "of attention", layers_, cast(s_ * q_, q_, q_));
      add("forward/SwiGLU/FP8 casts", "", layers_, cast(2 * s_ * f_, f_, f_));
    } else {
      add("forward/SwiGLU", "", layers_, {.read = 2 * s_ * f_, .written = s_ * f_});
    }
    add_norms("final", 1, 1, fp8_ && precision_.fp8_lm_head);
  }

  void count_loss() {
    add("loss/cross entropy", "", 1, {.read = s_ * v_, .written = s_ * v_});
    if (fp8_ && precision_.fp8_lm_head) add("loss/FP8 casts", "of dy", 1, cast(s_ * v_, v_, v_));
  }

  // Reads dy, x and the residual's gradient, which is accumulated into; the codes of the sum are
  // the dy of the linear layer before it.
  void add_norms_backward(const std::string& what, int64_t calls, bool is_cast) {
    const double codes = is_cast ? c_ : 0;
    add("backward/RMSNorm", what, calls,
        {.read = 3 * s_ * c_, .written = s_ * c_ + codes, .transposed = codes});
  }
  // Adds an operation that outputs the dy of a linear layer: only as codes if the cast is part of
  // it, else in the storage type, which a separate cast reads.
  void add_dy(const char* operation, const char* linear, double read, double written, double out) {
    add(operation, "", layers_,
        {.read = read, .written = ahead_ ? out : written, .transposed = ahead_ ? out : 0});
    add_dy_cast(linear, out);
  }
  void add_dy_cast(const char* linear, double out) {
    if (fp8_ && !ahead_)
      add("backward/FP8 casts", std::string("of dy of ") + linear, layers_,
          cast(s_ * out, out, out));
  }

  void count_backward() {
    add("backward", "zeros of the residual's gradient", 1, {.read = 0, .written = s_ * c_});
    add_norms_backward("final", 1, ahead_);
    add_dy_cast("down", c_);
    add_dy("backward/SwiGLU", "gate_up", 3 * s_ * f_, 2 * s_ * f_, 2 * f_);
    add_dy_cast("o", c_);
    count_backward_of_heads();
    add_norms_backward("of layers", 2 * layers_ - 1, ahead_);
    add_norms_backward("the first", 1, false);
    add("backward/embedding", "", 1, {.read = s_ * c_, .written = 0});
  }

  void count_backward_of_heads() {
    const double rotated = s_ * (q_ + k_), qkv = q_ + 2 * k_;
    if (config_.qk_norm) {
      add("backward/RoPE", "", layers_, {.read = rotated, .written = rotated});
      add("backward/RMSNorm of heads", "", layers_, {.read = 2 * rotated, .written = rotated});
      if (fp8_) add("backward/FP8 casts", "of dy of qkv", layers_, cast(s_ * qkv, qkv, qkv));
      return;
    }
    // dv is not rotated, but is read where its codes are written.
    add_dy("backward/RoPE", "qkv", ahead_ ? s_ * qkv : rotated, rotated, qkv);
  }

  // --- weights -----------------------------------------------------------------------------------

  [[nodiscard]] double stored_bytes(double rows, int64_t cols) const {
    const EncodedLayout layout = layout_of(linear_encoding(precision_));
    const double codes = double(layout.code_cols(cols)) * double(size_of(layout.codes));
    const double scales = layout.block_scales ? double(layout.scale_cols(cols)) *
                                                    double(size_of(layout.block_scales->dtype))
                                              : 0;
    return rows * (codes + scales);
  }

  void count_weights() {
    const double elements = double(layers_) * (c_ * (2 * q_ + 2 * k_) + 3 * c_ * f_);
    const int64_t hidden = config_.hidden_size, width = padded_intermediate_size(config_);
    const double stored =
        double(layers_) * (stored_bytes(q_ + 2 * k_ + 2 * f_, hidden) +
                           stored_bytes(c_, config_.query_width()) + stored_bytes(c_, width));
    if (fp8_)
      work_.weights = {.read = stored,
                       .written = elements,
                       .transposed = elements,
                       .each_micro_batch = precision_.fp8_weight_recast == Cadence::kMicrobatch};
    else if (is_scaled(precision_.weights))
      work_.weights = {.read = stored, .written = s_ * elements};
  }

  const LlamaConfig& config_;
  const PrecisionConfig& precision_;
  int64_t seq_len_;
  bool fp8_;
  bool ahead_;  // casts of gradients and of outputs of norms are part of the operation before
  int64_t layers_;
  double c_, q_, k_, f_, v_, s_;
  StepWork work_;
};

nlohmann::ordered_json json_of(const GemmWork& gemm) {
  return {{"linear", gemm.linear},
          {"product", gemm.product},
          {"calls", gemm.calls},
          {"inner", gemm.inner > 0 ? nlohmann::ordered_json(gemm.inner) : nlohmann::ordered_json()},
          {"format", name_of(gemm.format)},
          {"flops", gemm.flops}};
}

nlohmann::ordered_json json_of(const PassWork& pass) {
  return {{"operation", pass.operation},   {"what", pass.what},
          {"calls", pass.calls},           {"read_bytes", pass.read},
          {"written_bytes", pass.written}, {"transposed_bytes", pass.transposed}};
}

template <class T>
nlohmann::ordered_json list_of(const std::vector<T>& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const T& one : all) list.push_back(json_of(one));
  return list;
}

}  // namespace

StepWork step_work(const LlamaConfig& config, const PrecisionConfig& precision, int64_t seq_len) {
  return Counter(config, precision, seq_len).count();
}

nlohmann::ordered_json to_json(const StepWork& work) {
  return {{"gemms", list_of(work.gemms)},
          {"attention_flops",
           {{"forward", work.attention_forward}, {"backward", work.attention_backward}}},
          {"passes", list_of(work.passes)},
          {"weights",
           {{"read_bytes", work.weights.read},
            {"written_bytes", work.weights.written},
            {"transposed_bytes", work.weights.transposed},
            {"each_micro_batch", work.weights.each_micro_batch}}}};
}

}  // namespace mpt
