// A whole LLaMA over any scalar, from the formulas of reference.h: sum of the losses of a batch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/activations.h"
#include "model/golden_model.h"
#include "model/llama_config.h"
#include "model/reference.h"

namespace mpt::test {

template <class S>
using Weights = std::map<std::string, std::vector<S>, std::less<>>;

template <class S>
class ReferenceLlama {
 public:
  ReferenceLlama(const LlamaConfig& config, const Weights<S>& weights)
      : config_(config), weights_(weights) {}

  // Returns the loss of one row of tokens; the target -1 counts 0. `document_begin`: as in
  // TokenBatch.
  S loss(std::span<const int32_t> tokens, std::span<const int32_t> targets,
         std::span<const int32_t> document_begin = {}) const {
    std::vector<std::vector<S>> x;
    for (const int32_t token : tokens) {
      const std::span<const S> row =
          at("model.embed_tokens").subspan(size_t(token * config_.hidden_size));
      x.emplace_back(row.begin(), row.begin() + config_.hidden_size);
    }
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
      block(fmt::format("model.layers.{}.", layer), x, document_begin);
    S sum(0);
    for (size_t t = 0; t < x.size(); ++t)
      sum += reference_cross_entropy<S>(reference_linear<S>(norm(x[t], "model.norm"), at(head())),
                                        targets[t]);
    return sum;
  }
  S loss(const TokenBatch& batch, int64_t seq_len) const {
    S sum(0);
    for (size_t first = 0; first < batch.tokens.size(); first += size_t(seq_len))
      sum +=
          loss(batch.tokens.subspan(first, size_t(seq_len)),
               batch.targets.subspan(first, size_t(seq_len)),
               batch.document_begin.empty() ? batch.document_begin
                                            : batch.document_begin.subspan(first, size_t(seq_len)));
    return sum;
  }

 private:
  [[nodiscard]] const char* head() const {
    return config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  }
  std::span<const S> at(const std::string& name) const { return weights_.at(name + ".weight"); }
  std::vector<S> norm(const std::vector<S>& x, const std::string& name) const {
    return reference_rms_norm<S>(x, at(name), config_.rms_norm_eps);
  }
  static void add(std::vector<S>& x, const std::vector<S>& y) {
    for (size_t c = 0; c < x.size(); ++c) x[c] += y[c];
  }

  void block(const std::string& prefix, std::vector<std::vector<S>>& x,
             std::span<const int32_t> document_begin) const {
    const HeadShape shape{.heads = config_.num_attention_heads,
                          .head_dim = config_.head_dim(),
                          .theta = config_.rope_theta,
                          .readers = config_.num_attention_heads / config_.key_value_heads(),
                          .scaling = config_.rope_scaling};
    HeadShape of_keys = shape;
    of_keys.heads = config_.key_value_heads();
    std::vector<std::vector<S>> keys, values;
    for (size_t t = 0; t < x.size(); ++t) {
      const size_t begin = document_begin.empty() ? 0 : size_t(document_begin[t]);
      const auto position = double(t - begin);
      const std::vector<S> in = norm(x[t], prefix + "input_layernorm");
      const auto project = [&](const char* which) {
        return reference_linear<S>(in, at(fmt::format("{}self_attn.{}_proj", prefix, which)));
      };
      const auto normed = [&](const char* which) {
        const std::vector<S> y = project(which);
        if (!config_.qk_norm) return y;
        return reference_head_norm<S>(y, at(fmt::format("{}self_attn.{}_norm", prefix, which)),
                                      config_.rms_norm_eps);
      };
      keys.push_back(reference_rope<S>(normed("k"), of_keys, position));
      values.push_back(project("v"));
      const std::vector<S> query = reference_rope<S>(normed("q"), shape, position);
      const std::vector<S> heads = reference_attention<S>(query, std::span(keys).subspan(begin),
                                                          std::span(values).subspan(begin), shape);
      add(x[t], reference_linear<S>(heads, at(prefix + "self_attn.o_proj")));
    }
    for (std::vector<S>& row : x) mlp(prefix, row);
  }
  void mlp(const std::string& prefix, std::vector<S>& row) const {
    const std::vector<S> in = norm(row, prefix + "post_attention_layernorm");
    std::vector<S> gate = reference_linear<S>(in, at(prefix + "mlp.gate_proj"));
    const std::vector<S> up = reference_linear<S>(in, at(prefix + "mlp.up_proj"));
    for (size_t f = 0; f < gate.size(); ++f) gate[f] = reference_swiglu<S>(gate[f], up[f]);
    add(row, reference_linear<S>(gate, at(prefix + "mlp.down_proj")));
  }

  LlamaConfig config_;
  const Weights<S>& weights_;
};

template <class S>
Weights<S> widened(const NamedValues& weights) {
  Weights<S> wide;
  for (const auto& [name, values] : weights)
    wide[name] = std::vector<S>(values.begin(), values.end());
  return wide;
}

// Gradient of the sum of the losses with respect to every element of one parameter, by the complex
// step.
inline std::vector<double> reference_gradient(const GoldenModel& model, const std::string& name) {
  Weights<Complex> weights = widened<Complex>(model.weights);
  const std::vector<float>& values = model.weights.at(name);
  return complex_step(std::vector<double>(values.begin(), values.end()),
                      [&](const std::vector<Complex>& point) {
                        weights[name] = point;
                        return ReferenceLlama<Complex>(model.config, weights)
                            .loss(model.rows(0, model.batch.rows), model.batch.seq_len);
                      });
}

}  // namespace mpt::test
