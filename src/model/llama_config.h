// The `model` section of a config: the shape of a LLaMA, with Hugging Face's key names.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/json/config_struct.h"

namespace mpt {

// Scaling of rotary frequencies for contexts longer than those a model was trained on.
enum class RopeType : uint8_t { kDefault, kLinear, kLlama3 };
template <>
struct EnumNames<RopeType> {
  static constexpr std::array<std::string_view, 3> kNames{"default", "linear", "llama3"};
};

// The `rope_scaling` section (formulas in formulas/rope_table.h).
struct RopeScaling {
  RopeType rope_type = RopeType::kDefault;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;

  bool operator==(const RopeScaling&) const = default;

  void fields(Fields& f);
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
  // Width of all queries; width of all keys, or of all values.
  [[nodiscard]] int64_t query_width() const { return num_attention_heads * head_dim(); }
  [[nodiscard]] int64_t key_value_width() const { return key_value_heads() * head_dim(); }
  [[nodiscard]] int64_t qkv_width() const { return query_width() + 2 * key_value_width(); }

  void fields(Fields& f);
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
