// config.json of a Hugging Face directory: keys that map to a LLaMA here, and named errors for the
// rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config_json.h"
#include "model/llama_config.h"
#include "weights/source_texts.h"

namespace mpt {

// Files of a model's directory.
inline constexpr const char* kModelConfigFile = "config.json";
inline constexpr const char* kGenerationConfig = "generation_config.json";

struct HuggingFaceModel {
  LlamaConfig model;
  std::optional<int64_t> max_position_embeddings{};
  SpecialIds ids{};
};

// Every key is translated, or checked to have the only value that a model here has, or known not to
// affect what the model computes; any other is an error unless `ignored` names it. Accepted model
// types are llama and qwen3. Throws one Error with all problems, each naming `path`, the key, the
// value found and the accepted ones. Ranges are those of the config's model section; whether its
// values fit together is checked with the whole config (parse_run_config).
HuggingFaceModel llama_config_of_hugging_face(std::string_view text, const std::string& path,
                                              const std::vector<std::string>& ignored = {});

// Returns the ids, overridden by those of generation_config.json, `text`. Its other keys describe
// how text is generated, which no checkpoint here does.
SpecialIds with_generation_config(SpecialIds ids, std::string_view text, const std::string& path);

}  // namespace mpt
