#include "evaluation/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text/utf8.h"
#include "evaluation/text_stream.h"

namespace mpt {
namespace {

// Draws from [0, 1), with 53 bits.
double uniform_draw(const SamplingOptions& options, int64_t position) {
  const RandomCounter counter{.seed = options.seed,
                              .tensor = static_cast<uint32_t>(options.sample),
                              .row = static_cast<uint32_t>(position),
                              .step = 0,
                              .stream = kSamplingStream};
  const PhiloxBlock block = counter.block(0);
  const uint64_t bits = (uint64_t{block.word[0]} << 32 | block.word[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

void check_finite(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      throw error("the logit of token {} is {}; the model's weights are unusable", i, logits[i]);
}

// Compares two tokens: whether the first is the more likely one.
auto more_likely(std::span<const float> logits) {
  return [logits](int32_t a, int32_t b) {
    const float x = logits[size_t(a)], y = logits[size_t(b)];
    return x != y ? x > y : a < b;
  };
}

// Returns the k most likely tokens, ascending.
std::vector<int32_t> candidates(std::span<const float> logits, int64_t top_k) {
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (top_k == 0 || top_k >= std::ssize(tokens)) return tokens;
  std::nth_element(tokens.begin(), tokens.begin() + (top_k - 1), tokens.end(), more_likely(logits));
  tokens.resize(size_t(top_k));
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

// Returns how many of the descending weights sum to `top_p` of their total; at least one.
size_t nucleus(std::span<const double> weights, double top_p) {
  const double wanted = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    if ((sum += weights[i]) >= wanted) return i + 1;
  return weights.size();  // reached only by rounding of the sum
}

void check_sampling(const SamplingOptions& options) {
  if (!(std::isfinite(options.temperature) && options.temperature >= 0))
    throw error("temperature is {}; expected 0 (the most likely token) or a finite number above it",
                options.temperature);
  if (options.top_k < 0) throw error("top_k is {}; expected 0 (all tokens) or more", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw error("top_p is {}; expected a number above 0, up to 1 (all tokens)", options.top_p);
  if (options.sample < 0 || options.sample >= kMostSamples)
    throw error("sample is {}; expected 0 to {}", options.sample, kMostSamples - 1);
}

// Returns the token that precedes a document in the data.
int32_t beginning_of_text(const Tokenizer& tokenizer) {
  const int64_t id = tokenizer.eos_id() >= 0 ? tokenizer.eos_id() : tokenizer.bos_id();
  if (id < 0)
    throw error(
        "the prompt is empty, and {} has neither an EOS nor a BOS piece for a text to begin after",
        tokenizer.path());
  return int32_t(id);
}

struct Continuation {
  LlamaDecoder& decoder;
  const Tokenizer& tokenizer;
  const GenerateOptions& options;
  const TextSink& sink;
  TextStream text;
  int64_t tokens = 0;  // including EOS

  [[nodiscard]] bool ends_text(int32_t token) const {
    return token == tokenizer.eos_id() ||
           std::ranges::find(options.ends, token) != options.ends.end();
  }
  // `logits` are those of the first new token.
  StopReason run(std::vector<float> logits) {
    while (true) {
      const int32_t token =
          sample_token(spelled(logits, tokenizer), options.sampling, decoder.position());
      ++tokens;
      if (ends_text(token)) return StopReason::kEndOfText;
      if (!sink(text.add(token))) return StopReason::kReaderGone;
      if (tokens == options.max_tokens) return StopReason::kMaxTokens;
      if (decoder.position() == decoder.max_positions()) return StopReason::kContextFull;
      logits = decoder.next_logits(token);
    }
  }
};

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position) {
  check(!logits.empty(), "no logits to sample from");
  check_sampling(options);
  check_finite(logits);
  const auto top = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<int32_t>(top - logits.begin());
  const auto weights_of = [&](const std::vector<int32_t>& tokens) {
    std::vector<double> weights(tokens.size());
    std::transform(tokens.begin(), tokens.end(), weights.begin(), [&](int32_t token) {
      return std::exp((double(logits[size_t(token)]) - double(*top)) / options.temperature);
    });
    return weights;
  };
  std::vector<int32_t> tokens = candidates(logits, options.top_k);
  if (options.top_p < 1) {
    std::sort(tokens.begin(), tokens.end(), more_likely(logits));
    tokens.resize(nucleus(weights_of(tokens), options.top_p));
    std::sort(tokens.begin(), tokens.end());
  }
  const std::vector<double> weights = weights_of(tokens);
  double left =
      uniform_draw(options, position) * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (left < weights[i]) return tokens[i];
    left -= weights[i];
  }
  return static_cast<int32_t>(top - logits.begin());  // reached only by rounding of the sum
}

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const GenerateOptions& options,
                                   int64_t context) {
  if (options.max_tokens < 1)
    throw error("max_tokens is {}; expected 1 or more", options.max_tokens);
  check_sampling(options.sampling);
  const size_t valid = valid_utf8_prefix(options.prompt);
  if (valid < options.prompt.size())
    throw error("the prompt is not valid UTF-8: byte {} does not begin a character", valid);
  std::vector<int32_t> tokens = tokenizer.encode(options.prompt);
  if (options.prepend_bos && tokenizer.bos_id() < 0)
    throw error("{} has no BOS piece to prepend to the prompt", tokenizer.path());
  if (options.prepend_bos) tokens.insert(tokens.begin(), int32_t(tokenizer.bos_id()));
  if (tokens.empty()) tokens.push_back(beginning_of_text(tokenizer));
  if (std::ssize(tokens) > context)
    throw error(
        "the prompt has {} tokens; the model was trained on sequences of {}, so at most {} are "
        "accepted",
        tokens.size(), context, context);
  return tokens;
}

std::span<const float> spelled(std::span<const float> logits, const Tokenizer& tokenizer) {
  return logits.first(std::min(logits.size(), size_t(tokenizer.vocab_size())));
}

Continuations::Continuations(LlamaDecoder& decoder, const Tokenizer& tokenizer,
                             GenerateOptions options)
    : decoder_(decoder),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      prompt_(prompt_tokens(tokenizer, options_, decoder.max_positions())) {
  const auto begin = std::chrono::steady_clock::now();
  decoder.reset();
  for (const int32_t token : prompt_) logits_ = decoder.next_logits(token);
  seconds_ = seconds_since(begin);
}

Generation Continuations::next(const TextSink& sink) {
  check_sampling(options_.sampling);
  const auto begin = std::chrono::steady_clock::now();
  decoder_.rewind(std::ssize(prompt_));
  Continuation continuation{decoder_, tokenizer_, options_, sink, TextStream(tokenizer_, prompt_)};
  const StopReason stopped = continuation.run(logits_);
  if (stopped != StopReason::kReaderGone) sink(continuation.text.finish());
  ++options_.sampling.sample;
  return {.prompt_tokens = std::ssize(prompt_),
          .new_tokens = continuation.tokens,
          .stopped = stopped,
          .prompt_seconds = seconds_,
          .seconds = seconds_since(begin)};
}

Generation generate(LlamaDecoder& decoder, const Tokenizer& tokenizer,
                    const GenerateOptions& options, const TextSink& sink) {
  const int64_t tokens = std::ssize(prompt_tokens(tokenizer, options, decoder.max_positions()));
  if (!sink(options.prompt)) return {.prompt_tokens = tokens, .stopped = StopReason::kReaderGone};
  return Continuations(decoder, tokenizer, options).next(sink);
}

}  // namespace mpt
