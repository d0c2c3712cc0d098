// config.json of a Hugging Face directory: what of it a LLaMA here has, and a named refusal of the
// rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/llama_config.h"

namespace mpt {

struct HuggingFaceModel {
  LlamaConfig model;
  std::optional<int64_t> max_position_embeddings{};
};

// Every key is translated, or checked to have the only value that a model here has, or known to be
// without influence on what the model computes; any other is an error unless `ignored` names it.
// Accepted types of models are llama and qwen3. Throws one Error with all problems, each naming
// `path`, the key, what was found and what would be accepted. Ranges are those of the config's
// model section; which of its values go together is checked with the whole config
// (parse_run_config).
HuggingFaceModel llama_config_of_hugging_face(std::string_view text, const std::string& path,
                                              const std::vector<std::string>& ignored = {});

}  // namespace mpt
