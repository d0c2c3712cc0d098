// A model with random weights and a random batch, large enough in its weights that no part is
// nearly linear.
#pragma once

#include <random>

#include "core/normal.h"
#include "core/random.h"
#include "model/golden_model.h"
#include "model/model_bench.h"
#include "model/parameters.h"

namespace mpt::test {

struct RandomModelOptions {
  DType storage = DType::kF32;  // the weights are exact in it
  double ignored = 0;           // fraction of the targets
  uint64_t seed = 1;
  double documents = 0;  // fraction of the tokens that begin one, for attention within documents
};

inline std::vector<float> random_weight(const ParamSpec& spec, const RandomModelOptions& options) {
  const bool gain = spec.kind == ParamKind::kNorm;
  const double scale = gain                                 ? 0.2
                       : spec.kind == ParamKind::kEmbedding ? 0.5
                                                            : 1.25 / std::sqrt(double(spec.cols));
  std::vector<float> values(size_t(spec.elements()));
  for (int64_t r = 0; r < spec.rows; ++r)
    fill_normals({options.seed, spec.tensor_id, uint32_t(r), 0, kSyntheticStream}, scale, spec.cols,
                 values.data() + r * spec.cols);
  for (float& x : values) {
    if (gain) x += 1;
    if (options.storage == DType::kBF16) x = rounded_to<bf16>(x);
  }
  return values;
}

// Leaves `gradients`, `logits` and `loss` empty.
inline GoldenModel random_model(const LlamaConfig& config, const BatchShape& batch,
                                const RandomModelOptions& options) {
  GoldenModel model{.config = config, .batch = batch};
  for (const ParamSpec& spec : llama_parameters(config))
    model.weights[spec.name] = random_weight(spec, options);
  std::mt19937_64 random(options.seed);
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    model.tokens.push_back(int32_t(random() % uint64_t(config.vocab_size)));
    const bool ignored = double(random() >> 11) * 0x1p-53 < options.ignored;
    model.targets.push_back(ignored ? -1 : int32_t(random() % uint64_t(config.vocab_size)));
  }
  for (int64_t i = 0; options.documents > 0 && i < batch.tokens(); ++i) {
    const int64_t t = i % batch.seq_len;
    const bool begins = t == 0 || double(random() >> 11) * 0x1p-53 < options.documents;
    model.document_begin.push_back(begins ? int32_t(t) : model.document_begin.back());
  }
  return model;
}

}  // namespace mpt::test
