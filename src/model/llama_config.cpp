#include "model/llama_config.h"

#include "core/json/config_fields.h"

namespace mpt {

void RopeScaling::fields(Fields& f) {
  f.optional("rope_type", rope_type,
             {.doc = "linear: all frequencies divided by factor; llama3: only the low ones"});
  f.optional(
      "factor", factor,
      {.minimum = 1,
       .maximum = 1e6,
       .only_with = only_with("rope_type", rope_type, {RopeType::kLinear, RopeType::kLlama3}),
       .doc = "by how much the context is longer than the original one"});
  const Condition llama3 = only_with("rope_type", rope_type, {RopeType::kLlama3});
  f.optional("low_freq_factor", low_freq_factor,
             {.minimum = kMinPositiveReal,
              .maximum = 1e6,
              .only_with = llama3,
              .doc = "frequencies with fewer turns than this in the original context are divided "
                     "by factor"});
  f.optional("high_freq_factor", high_freq_factor,
             {.minimum = kMinPositiveReal,
              .maximum = 1e6,
              .only_with = llama3,
              .doc = "those with more turns are kept; between the two they are interpolated"});
  f.optional("original_max_position_embeddings", original_max_position_embeddings,
             {.minimum = 1,
              .maximum = 1 << 30,
              .only_with = llama3,
              .doc = "tokens of the original context"});
}

void LlamaConfig::fields(Fields& f) {
  f.required("hidden_size", hidden_size,
             {.minimum = 2, .maximum = 1 << 16, .doc = "C, width of the residual stream"});
  f.required("intermediate_size", intermediate_size,
             {.minimum = 1, .maximum = 1 << 20, .doc = "F, width inside the SwiGLU block"});
  f.required("num_hidden_layers", num_hidden_layers,
             {.minimum = 1, .maximum = 4096, .doc = "L, number of blocks"});
  f.required("num_attention_heads", num_attention_heads,
             {.minimum = 1, .maximum = 1 << 15, .doc = "H, number of query heads"});
  f.optional("num_key_value_heads", num_key_value_heads,
             {.minimum = 1,
              .maximum = 1 << 15,
              .doc = "heads of keys and values, a divisor of H, each read by H divided by this "
                     "query heads; null = H"});
  f.optional("head_dim", head_size,
             {.minimum = 2,
              .maximum = 1 << 12,
              .doc = "D, elements of a head, even; null = hidden_size / H"});
  f.required("vocab_size", vocab_size,
             {.minimum = 2, .maximum = 1 << 24, .doc = "V, number of tokenizer pieces"});
  f.optional("tie_word_embeddings", tie_word_embeddings,
             {.doc = "the embedding is also the head: one matrix, whose gradient is the sum of "
                     "both uses"});
  f.optional("qk_norm", qk_norm,
             {.doc = "RMSNorm of every head of queries and keys before they are rotated, with a "
                     "gain each, as in Qwen3"});
  f.optional(
      "rms_norm_eps", rms_norm_eps,
      {.minimum = kMinPositiveReal, .maximum = 1, .doc = "added to the mean square in RMSNorm"});
  f.optional("rope_theta", rope_theta,
             {.minimum = 1, .maximum = kMaxReal, .doc = "base of the rotary position frequencies"});
  f.section("rope_scaling", rope_scaling, "rotary frequencies of a longer context");
  f.optional("initializer_range", initializer_range,
             {.minimum = 0,
              .maximum = 1e3,
              .doc = "standard deviation of initial linear and embedding weights"});
  f.optional("pad_multiple", pad_multiple,
             {.minimum = 1,
              .maximum = 4096,
              .doc = "physical widths are rounded up to a multiple of this; the padding is zero "
                     "and changes at most the order of sums"});
}

}  // namespace mpt
