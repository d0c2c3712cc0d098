// Tokens to text as they come, in whole characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace mpt {

// The pieces that add() and finish() return are together what the tokenizer makes of prompt and tokens in one
// go, behind what it makes of the prompt. A character that is spelled in several byte tokens is held back
// until it is complete.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

  std::string add(int32_t token);
  // What was held back.
  std::string finish();

 private:
  std::string take(const std::string& text, size_t end);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
  size_t shown_;  // bytes of the text of all tokens
};

}  // namespace mpt
