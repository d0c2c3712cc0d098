// Text generation: tokens are drawn one at a time and printed as they are drawn.
//
// The text depends only on weights, tokenizer and options: the draw of a token depends on the seed
// and its position (docs/numerics.md "Sampling").
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "data/tokenizer.h"
#include "model/llama_decoder.h"

namespace mpt {

// Streams tokens as text, in whole characters.

// The pieces that add() and finish() return concatenate to the text of prompt and tokens decoded at
// once, minus the text of the prompt. A character spelled by several byte tokens is held back until
// complete.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

  std::string add(int32_t token);
  // Returns the text held back.
  std::string finish();

 private:
  std::string take(const std::string& text, size_t end);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
  std::string shown_;  // of the text of all tokens
};

inline constexpr RandomStream kSamplingStream{8};

struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: the most likely token
  int64_t top_k = 0;         // draw only from the k most likely; 0: from all
  uint64_t seed = 0;
};

// One of the tokens [0, logits.size()), drawn for `position` of the sequence. Among equal logits,
// the smaller token id ranks as more likely. Throws Error if a logit is not finite.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position);

struct GenerateOptions {
  std::string prompt;
  int64_t max_tokens = 100;
  SamplingOptions sampling{};
  bool prepend_bos = false;  // in front of the prompt
};

enum class StopReason : uint8_t { kMaxTokens, kEndOfText, kContextFull, kReaderGone };

struct Generation {
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;  // EOS included
  StopReason stopped = StopReason::kMaxTokens;
  double prompt_seconds = 0;
  double seconds = 0;  // for the new tokens
};

// Receives a piece of text; returns false to stop.
using TextSink = std::function<bool(std::string_view)>;

// Passes the prompt and then its continuation to `sink`, in pieces of whole characters. Throws
// Error if an option is out of range, or the prompt is empty or exceeds the decoder's context.
Generation generate(LlamaDecoder& decoder, const Tokenizer& tokenizer,
                    const GenerateOptions& options, const TextSink& sink);

}  // namespace mpt
