// Text generation: tokens are drawn one at a time and printed as they are drawn.
//
// The text depends only on weights, tokenizer and options: the draw of a token depends on the seed,
// the sample and its position (docs/numerics.md "Sampling").
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "model/llama_decoder.h"
#include "text/tokenizer.h"

namespace mpt {

inline constexpr RandomStream kSamplingStream{8};
inline constexpr int64_t kMostSamples = 1 << 16;  // of one prompt

struct SamplingOptions {
  double temperature = 1.0;  // divides the logits; 0: the most likely token
  int64_t top_k = 0;         // draw only from the k most likely; 0: from all
  // Further limits the draw to the most likely tokens whose probabilities sum to this; in (0, 1],
  // 1: all.
  // all.
  double top_p = 1.0;
  uint64_t seed = 0;
  int64_t sample = 0;  // each has its own draws; below kMostSamples
};

// Returns one of the tokens [0, logits.size()), drawn for `position` of the sequence. Among equal
// logits, the smaller token id ranks as more likely. Throws Error if a logit is not finite.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position);

struct GenerateOptions {
  std::string prompt;  // "": start a new text
  int64_t max_tokens = 100;
  SamplingOptions sampling{};
  bool prepend_bos = false;     // before the prompt
  std::vector<int64_t> ends{};  // tokens that end a text like the tokenizer's EOS
};

enum class StopReason : uint8_t { kMaxTokens, kEndOfText, kContextFull, kReaderGone };

struct Generation {
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;  // including EOS
  StopReason stopped = StopReason::kMaxTokens;
  double prompt_seconds = 0;
  double seconds = 0;  // for the new tokens
};

// Receives a piece of text; returns false to stop.
using TextSink = std::function<bool(std::string_view)>;

// Returns the tokens that a model reads for options.prompt: BOS if requested, then those of the
// text. For an empty prompt, the token that precedes a document in the data: BOS if requested, else
// EOS, else BOS. Throws Error if an option is out of range, the prompt is not UTF-8, has more than
// `context` tokens, or is empty and the tokenizer has neither.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const GenerateOptions& options,
                                   int64_t context);

// Returns the logits of tokens in the tokenizer's vocabulary; a model may have more.
std::span<const float> spelled(std::span<const float> logits, const Tokenizer& tokenizer);

// Continuations of one prompt, which is read once.
class Continuations {
 public:
  // Reads the prompt; throws Error like prompt_tokens(). `decoder` and `tokenizer` must outlive
  // this object, and the decoder may not be used elsewhere.
  Continuations(LlamaDecoder& decoder, const Tokenizer& tokenizer, GenerateOptions options);

  // Passes the continuation of the next sample, starting at options.sampling.sample, to `sink`, in
  // pieces of whole characters.
  Generation next(const TextSink& sink);

 private:
  LlamaDecoder& decoder_;
  const Tokenizer& tokenizer_;
  GenerateOptions options_;
  std::vector<int32_t> prompt_;
  std::vector<float> logits_;  // of the first new token
  double seconds_ = 0;         // for the prompt
};

// Passes the prompt and then one continuation to `sink`. Throws Error like prompt_tokens().
Generation generate(LlamaDecoder& decoder, const Tokenizer& tokenizer,
                    const GenerateOptions& options, const TextSink& sink);

}  // namespace mpt
