// Texts that a model writes while it is trained: continuations of eval.sample_prompts.
//
// They are computed as a step computes, in the memory of a micro-batch: a forward pass over one row
// for each token. Every prompt has a row of its own, so that a text depends on no other and not on
// the number of ranks. Nothing that a checkpoint holds changes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "data/tokenizer.h"
#include "inference/generate.h"
#include "model/llama.h"

namespace mpt {

struct SampleText {
  std::string prompt;
  std::string text{};  // what follows it
  bool finite = true;  // false: the text ends where a logit was not finite
};

// A line of samples.jsonl: {"step": 20, "samples": [{"prompt": "The", "text": " cat"}, ...]}, with
// "nonfinite": true where one is not.
nlohmann::ordered_json samples_json(int64_t step, std::span<const SampleText> samples);

class RunSamples {
 public:
  // Throws Error if no tokenizer is known, or a prompt is too long or cannot be encoded.
  explicit RunSamples(const RunConfig& config);

  // Of all prompts; all ranks have to call it and get the same. The draws are those of `generate`
  // with the seed of the run, whatever the step.
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
