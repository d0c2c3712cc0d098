// The `model` section of a config: the shape of a LLaMA, with keys as Hugging Face spells them.
#pragma once

#include <cstdint>

#include "core/json/config_fields.h"

namespace mpt {

struct LlamaConfig {
  int64_t hidden_size = 0;          // C
  int64_t intermediate_size = 0;    // F
  int64_t num_hidden_layers = 0;    // L
  int64_t num_attention_heads = 0;  // H
  int64_t vocab_size = 0;           // V
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  double initializer_range = 0.02;
  int64_t pad_multiple = 16;

  bool operator==(const LlamaConfig&) const = default;

  [[nodiscard]] int64_t head_dim() const { return hidden_size / num_attention_heads; }  // D

  template <class V>
  void fields(V& v) {
    v.required("hidden_size", hidden_size,
               {.minimum = 2, .maximum = 1 << 16, .doc = "C, width of the residual stream"});
    v.required("intermediate_size", intermediate_size,
               {.minimum = 1, .maximum = 1 << 20, .doc = "F, width inside the SwiGLU block"});
    v.required("num_hidden_layers", num_hidden_layers,
               {.minimum = 1, .maximum = 4096, .doc = "L, number of blocks"});
    v.required("num_attention_heads", num_attention_heads,
               {.minimum = 1,
                .maximum = 1 << 15,
                .doc = "H, number of heads; the head size hidden_size / H must be even"});
    v.required("vocab_size", vocab_size,
               {.minimum = 2,
                .maximum = 1 << 24,
                .doc = "V, number of tokenizer pieces; embedding and head are untied"});
    v.optional(
        "rms_norm_eps", rms_norm_eps,
        {.minimum = kMinPositiveReal, .maximum = 1, .doc = "added to the mean square in RMSNorm"});
    v.optional(
        "rope_theta", rope_theta,
        {.minimum = 1, .maximum = kMaxReal, .doc = "base of the rotary position frequencies"});
    v.optional("initializer_range", initializer_range,
               {.minimum = 0,
                .maximum = 1e3,
                .doc = "standard deviation of initial linear and embedding weights"});
    v.optional("pad_multiple", pad_multiple,
               {.minimum = 1,
                .maximum = 4096,
                .doc = "physical widths are rounded up to a multiple of this; the padding is zero "
                       "and affects no result"});
  }
};

// N = 2 V C + L (4 C^2 + 3 C F) + (2 L + 1) C: logical elements of all weights, padding excluded.
inline int64_t parameter_count(const LlamaConfig& c) {
  const int64_t embedding_and_head = 2 * c.vocab_size * c.hidden_size;
  const int64_t block = 4 * c.hidden_size * c.hidden_size + 3 * c.hidden_size * c.intermediate_size;
  const int64_t norms = (2 * c.num_hidden_layers + 1) * c.hidden_size;
  return embedding_and_head + c.num_hidden_layers * block + norms;
}

}  // namespace mpt
