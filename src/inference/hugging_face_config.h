// config.json of a Hugging Face directory: what of it a LLaMA here has, and a named refusal of the
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

namespace mpt {

// Files of a model's directory.
inline constexpr const char* kModelConfigFile = "config.json";
inline constexpr const char* kGenerationConfig = "generation_config.json";

// Tokens with a meaning, as Hugging Face's files have them: each a number, a list of numbers, or
// null, also if the files do not say.
struct SpecialIds {
  nlohmann::json bos, eos, pad;

  // Of `ids`, those in [0, vocab_size).
  static std::vector<int64_t> within(const nlohmann::json& ids, int64_t vocab_size);
  // The first of them; -1 if there is none.
  static int64_t first(const nlohmann::json& ids, int64_t vocab_size);
};

inline constexpr const char* kSourceTexts = "source_texts";  // in a checkpoint's extra state

// What a model's own files say of its texts. It is kept in the state of an imported checkpoint and
// of those that are made of its weights without training.
struct SourceTexts {
  bool begin_with_bos = false;
  SpecialIds ids{};

  [[nodiscard]] nlohmann::json json() const;
  // What has another shape than that of json() is left out.
  static SourceTexts of_json(const nlohmann::json& json);
};

struct HuggingFaceModel {
  LlamaConfig model;
  std::optional<int64_t> max_position_embeddings{};
  SpecialIds ids{};
};

// Every key is translated, or checked to have the only value that a model here has, or known to be
// without influence on what the model computes; any other is an error unless `ignored` names it.
// Accepted types of models are llama and qwen3. Throws one Error with all problems, each naming
// `path`, the key, what was found and what would be accepted. Ranges are those of the config's
// model section; which of its values go together is checked with the whole config
// (parse_run_config).
HuggingFaceModel llama_config_of_hugging_face(std::string_view text, const std::string& path,
                                              const std::vector<std::string>& ignored = {});

// The ids with those of generation_config.json, `text`, in place of what it has. Its other keys say
// how text is generated, which no checkpoint here does.
SpecialIds with_generation_config(SpecialIds ids, std::string_view text, const std::string& path);

}  // namespace mpt
