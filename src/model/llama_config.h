// The `model` section of a config: the shape of a LLaMA, with keys as Hugging Face spells them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/json/config_fields.h"

namespace mpt {

// How rotary frequencies change for contexts longer than those a model was trained on.
enum class RopeType : uint8_t { kDefault, kLinear, kLlama3 };
template <>
struct EnumNames<RopeType> {
  static constexpr std::array<std::string_view, 3> kNames{"default", "linear", "llama3"};
};

// The `rope_scaling` section (formulas/rope_table.h has the formulas).
struct RopeScaling {
  RopeType rope_type = RopeType::kDefault;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;

  bool operator==(const RopeScaling&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("rope_type", rope_type,
               {.doc = "linear: all frequencies divided by factor; llama3: only the low ones"});
    v.optional(
        "factor", factor,
        {.minimum = 1,
         .maximum = 1e6,
         .only_with = only_with("rope_type", rope_type, {RopeType::kLinear, RopeType::kLlama3}),
         .doc = "by how much the context is longer than the original one"});
    const Condition llama3 = only_with("rope_type", rope_type, {RopeType::kLlama3});
    v.optional("low_freq_factor", low_freq_factor,
               {.minimum = kMinPositiveReal,
                .maximum = 1e6,
                .only_with = llama3,
                .doc = "frequencies with fewer turns than this in the original context are divided "
                       "by factor"});
    v.optional("high_freq_factor", high_freq_factor,
               {.minimum = kMinPositiveReal,
                .maximum = 1e6,
                .only_with = llama3,
                .doc = "those with more turns are kept; between the two they are interpolated"});
    v.optional("original_max_position_embeddings", original_max_position_embeddings,
               {.minimum = 1,
                .maximum = 1 << 30,
                .only_with = llama3,
                .doc = "tokens of the original context"});
  }
};

struct LlamaConfig {
  int64_t hidden_size = 0;                       // C
  int64_t intermediate_size = 0;                 // F
  int64_t num_hidden_layers = 0;                 // L
  int64_t num_attention_heads = 0;               // H
  std::optional<int64_t> num_key_value_heads{};  // K
  std::optional<int64_t> head_size{};            // D, the key head_dim
  int64_t vocab_size = 0;                        // V
  bool tie_word_embeddings = false;
  bool qk_norm = false;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling{};
  double initializer_range = 0.02;
  int64_t pad_multiple = 16;

  bool operator==(const LlamaConfig&) const = default;

  [[nodiscard]] int64_t key_value_heads() const {
    return num_key_value_heads.value_or(num_attention_heads);
  }
  [[nodiscard]] int64_t head_dim() const {
    return head_size.value_or(hidden_size / num_attention_heads);
  }
  // Widths of all queries, and of all keys or all values.
  [[nodiscard]] int64_t query_width() const { return num_attention_heads * head_dim(); }
  [[nodiscard]] int64_t key_value_width() const { return key_value_heads() * head_dim(); }
  [[nodiscard]] int64_t qkv_width() const { return query_width() + 2 * key_value_width(); }

  template <class V>
  void fields(V& v) {
    v.required("hidden_size", hidden_size,
               {.minimum = 2, .maximum = 1 << 16, .doc = "C, width of the residual stream"});
    v.required("intermediate_size", intermediate_size,
               {.minimum = 1, .maximum = 1 << 20, .doc = "F, width inside the SwiGLU block"});
    v.required("num_hidden_layers", num_hidden_layers,
               {.minimum = 1, .maximum = 4096, .doc = "L, number of blocks"});
    v.required("num_attention_heads", num_attention_heads,
               {.minimum = 1, .maximum = 1 << 15, .doc = "H, number of query heads"});
    v.optional("num_key_value_heads", num_key_value_heads,
               {.minimum = 1,
                .maximum = 1 << 15,
                .doc = "heads of keys and values, a divisor of H, each read by H divided by this "
                       "query heads; null = H"});
    v.optional("head_dim", head_size,
               {.minimum = 2,
                .maximum = 1 << 12,
                .doc = "D, elements of a head, even; null = hidden_size / H"});
    v.required("vocab_size", vocab_size,
               {.minimum = 2, .maximum = 1 << 24, .doc = "V, number of tokenizer pieces"});
    v.optional("tie_word_embeddings", tie_word_embeddings,
               {.doc = "the embedding is also the head: one matrix, whose gradient is the sum of "
                       "both uses"});
    v.optional("qk_norm", qk_norm,
               {.doc = "RMSNorm of every head of queries and keys before they are rotated, with a "
                       "gain each, as in Qwen3"});
    v.optional(
        "rms_norm_eps", rms_norm_eps,
        {.minimum = kMinPositiveReal, .maximum = 1, .doc = "added to the mean square in RMSNorm"});
    v.optional(
        "rope_theta", rope_theta,
        {.minimum = 1, .maximum = kMaxReal, .doc = "base of the rotary position frequencies"});
    v.section("rope_scaling", rope_scaling, "rotary frequencies of a longer context");
    v.optional("initializer_range", initializer_range,
               {.minimum = 0,
                .maximum = 1e3,
                .doc = "standard deviation of initial linear and embedding weights"});
    v.optional("pad_multiple", pad_multiple,
               {.minimum = 1,
                .maximum = 4096,
                .doc = "physical widths are rounded up to a multiple of this; the padding is zero "
                       "and changes at most the order of sums"});
  }
};

// Logical elements of a block's linear layers: q, k, v and o; gate, up and down.
inline int64_t linear_elements_of_layer(const LlamaConfig& c) {
  return c.hidden_size * (c.qkv_width() + c.query_width() + 3 * c.intermediate_size);
}

// Logical elements of all weights, padding excluded.
inline int64_t parameter_count(const LlamaConfig& c) {
  const int64_t embedding_and_head = (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * c.hidden_size;
  const int64_t norms_of_layer = 2 * c.hidden_size + (c.qk_norm ? 2 * c.head_dim() : 0);
  return embedding_and_head + c.num_hidden_layers * (linear_elements_of_layer(c) + norms_of_layer) +
         c.hidden_size;
}

}  // namespace mpt
