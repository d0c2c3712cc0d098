// Streams tokens as text, in whole characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace mpt {

// The pieces returned by add() and finish() concatenate to the text of prompt and tokens decoded
// together, minus the text of the prompt. A character spelled by several byte tokens is held back
// until complete.
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

}  // namespace mpt
