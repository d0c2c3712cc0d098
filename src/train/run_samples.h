// Texts that a model writes during training: continuations of eval.sample_prompts.
//
// They are computed like a step, in the memory of a micro-batch: one forward pass over one row per
// token. Every prompt has its own row, so that a text depends neither on the others nor on the
// number of ranks. Nothing that a checkpoint holds changes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "evaluation/generate.h"
#include "model/llama.h"
#include "text/tokenizer.h"

namespace mpt {

struct SampleText {
  std::string prompt;
  std::string text{};  // its continuation
  bool finite = true;  // false: the text ends where a logit was not finite
};

// A line of samples.jsonl: {"step": 20, "samples": [{"prompt": "The", "text": " cat"}, ...]}, with
// "nonfinite": true for a text that is not finite.
nlohmann::ordered_json samples_json(int64_t step, std::span<const SampleText> samples);

class RunSamples {
 public:
  // Throws Error if no tokenizer is known, or a prompt is too long or cannot be encoded.
  explicit RunSamples(const RunConfig& config);

  // Writes texts for all prompts; all ranks must call it and get the same. The draws are those of
  // `generate` with the seed of the run, at any step.
  [[nodiscard]] std::vector<SampleText> write(Llama& model) const;

 private:
  struct Prompt {
    GenerateOptions options;
    std::vector<int32_t> tokens;
  };
  [[nodiscard]] SampleText continued(Llama& model, const Prompt& prompt) const;

  Tokenizer tokenizer_;
  int64_t seq_len_;
  std::vector<Prompt> prompts_;
};

}  // namespace mpt
