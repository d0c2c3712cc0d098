// Reads the golden models of tests/golden: configuration, FP32 tensors and one batch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/safetensors.h"
#include "model/activations.h"
#include "model/llama.h"
#include "model/llama_config.h"
#include "support/stored_values.h"

namespace mpt::test {

using NamedValues = std::map<std::string, std::vector<float>, std::less<>>;

struct GoldenModel {
  LlamaConfig config;
  BatchShape batch;
  NamedValues weights{};    // under their Hugging Face names
  NamedValues gradients{};  // of the mean loss
  std::vector<float> logits{};
  std::vector<int32_t> tokens{}, targets{};
  std::vector<int32_t> document_begin{};  // for attention within documents
  double loss = 0;                        // mean over the targets that are not -1

  [[nodiscard]] TokenBatch rows(int64_t first, int64_t count) const {
    const auto from = size_t(first * batch.seq_len), size = size_t(count * batch.seq_len);
    TokenBatch rows{std::span(tokens).subspan(from, size), std::span(targets).subspan(from, size)};
    if (!document_begin.empty())
      rows.document_begin = std::span(document_begin).subspan(from, size);
    return rows;
  }
  [[nodiscard]] int64_t predicted() const {
    return std::ranges::count_if(targets, [](int32_t t) { return t >= 0; });
  }
};

inline std::string golden_path(std::string_view name) {
  return std::string(MPT_SOURCE_DIR "/tests/golden/").append(name).append(".safetensors");
}

inline LlamaConfig golden_config(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.hidden_size = json.at("hidden_size"),
          .intermediate_size = json.at("intermediate_size"),
          .num_hidden_layers = json.at("num_hidden_layers"),
          .num_attention_heads = json.at("num_attention_heads"),
          .vocab_size = json.at("vocab_size"),
          .rms_norm_eps = json.at("rms_norm_eps"),
          .rope_theta = json.at("rope_theta")};
}

inline GoldenModel load_golden(std::string_view name) {
  const SafetensorsReader file(posix_file_system(), golden_path(name));
  const auto& tokens = file.at("tokens");
  GoldenModel golden{.config = golden_config(file.metadata().at("config")),
                     .batch = {.rows = tokens.shape.at(0), .seq_len = tokens.shape.at(1)},
                     .logits = stored_values<float>(file, file.at("logits")),
                     .tokens = stored_values<int32_t>(file, tokens),
                     .targets = stored_values<int32_t>(file, file.at("targets")),
                     .loss = std::stod(file.metadata().at("loss"))};
  for (const auto& entry : file.tensors()) {
    if (!entry.name.ends_with(".weight")) continue;
    if (entry.name.starts_with("grad/"))
      golden.gradients[entry.name.substr(5)] = stored_values<float>(file, entry);
    else
      golden.weights[entry.name] = stored_values<float>(file, entry);
  }
  return golden;
}

}  // namespace mpt::test
