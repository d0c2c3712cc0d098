#include "train/run_samples.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "evaluation/text_stream.h"
#include "weights/model_tokenizer.h"

namespace mpt {
namespace {

TokenizerFile tokenizer_of_samples(const RunConfig& config) {
  TokenizerFile file = find_tokenizer(config, "");
  if (file.path.empty())
    throw error(
        "eval.samples_every: the tokenizer of the data is unknown; name it by data.tokenizer");
  return file;
}

// Returns the logits of the next token, in the model's arithmetic.
std::vector<float> next_logits(Llama& model, std::span<const int32_t> tokens, int64_t seq_len) {
  std::vector<int32_t> row(size_t(seq_len), 0);
  std::ranges::copy(tokens, row.begin());
  model.read({row, std::vector<int32_t>(row.size(), -1)});
  std::vector<float> next;
  model.visit_logits(
      std::vector<int64_t>{std::ssize(tokens) - 1},
      [&](size_t, std::span<const float> logits) { next.assign(logits.begin(), logits.end()); });
  return next;
}

bool all_finite(std::span<const float> logits) {
  return std::ranges::all_of(logits, [](float x) { return std::isfinite(x); });
}

}  // namespace

nlohmann::ordered_json samples_json(int64_t step, std::span<const SampleText> samples) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const SampleText& sample : samples) {
    all.push_back({{"prompt", sample.prompt}, {"text", sample.text}});
    if (!sample.finite) all.back()["nonfinite"] = true;
  }
  return {{"step", step}, {"samples", std::move(all)}};
}

RunSamples::RunSamples(const RunConfig& config)
    : tokenizer_(load_tokenizer(config, tokenizer_of_samples(config))),
      seq_len_(config.batch.seq_len) {
  const bool prepend_bos = tokenizer_of_samples(config).prepend_bos;
  const EvalConfig& eval = config.eval;
  for (const std::string& text : eval.sample_prompts) try {
      const GenerateOptions options{
          .prompt = text,
          .max_tokens = eval.sample_tokens,
          .sampling = {.temperature = eval.sample_temperature, .seed = config.seed},
          .prepend_bos = prepend_bos};
      prompts_.push_back({options, prompt_tokens(tokenizer_, options, seq_len_)});
    } catch (const Error& e) {
      throw error("eval.sample_prompts: number {}: {}", prompts_.size() + 1, e.what());
    }
}

std::vector<SampleText> RunSamples::write(Llama& model) const {
  std::vector<SampleText> samples;
  for (const Prompt& prompt : prompts_) samples.push_back(continued(model, prompt));
  return samples;
}

SampleText RunSamples::continued(Llama& model, const Prompt& prompt) const {
  SampleText sample{.prompt = prompt.options.prompt};
  std::vector<int32_t> tokens = prompt.tokens;
  TextStream stream(tokenizer_, tokens);
  for (int64_t i = 0; i < prompt.options.max_tokens && std::ssize(tokens) <= seq_len_; ++i) {
    const std::vector<float> logits = next_logits(model, tokens, seq_len_);
    const std::span<const float> known = spelled(logits, tokenizer_);
    sample.finite = all_finite(known);
    if (!sample.finite) break;
    const int32_t token = sample_token(known, prompt.options.sampling, std::ssize(tokens));
    if (token == tokenizer_.eos_id()) break;
    sample.text += stream.add(token);
    tokens.push_back(token);
  }
  sample.text += stream.finish();
  return sample;
}

}  // namespace mpt
