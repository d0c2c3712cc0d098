// Joins the pieces of ids into text: the key "decoder" of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/subword/normalizer.h"

namespace mpt {

struct DecodeByteLevel {};     // joins all pieces and decodes the bytes they spell
struct DecodeByteFallback {};  // turns pieces "<0x0A>" into bytes
struct Fuse {};                // joins all pieces
struct StripEnds {
  std::string character;
  int64_t begin = 0, end = 0;  // maximum number removed from each piece
};
struct DecodeMetaspace {
  std::string replacement;
  bool prepended = false;  // dropped from the first piece instead of becoming spaces
};

class TextDecoder {
 public:
  using Step = std::variant<DecodeByteLevel, DecodeByteFallback, Fuse, StripEnds, ReplaceMatches,
                            DecodeMetaspace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Bytes that are not UTF-8 become U+FFFD. Without steps, joins the pieces with spaces.
  [[nodiscard]] std::string decode(std::vector<std::string> pieces) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mpt
