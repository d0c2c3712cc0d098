// From the pieces of ids to text: the key "decoder" of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "data/subword/normalizer.h"

namespace mpt {

struct DecodeByteLevel {};     // all pieces become one, of the bytes they spell
struct DecodeByteFallback {};  // pieces "<0x0A>" become bytes
struct Fuse {};                // all pieces become one
struct StripEnds {
  std::string character;
  int64_t begin = 0, end = 0;  // at most so many are taken off each piece
};
struct DecodeMetaspace {
  std::string replacement;
  bool prepended = false;  // those of the first piece are left out, else they are spaces
};

class TextDecoder {
 public:
  using Step = std::variant<DecodeByteLevel, DecodeByteFallback, Fuse, StripEnds, ReplaceMatches,
                            DecodeMetaspace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Bytes that are not UTF-8 become U+FFFD. Without steps, spaces are between the pieces.
  [[nodiscard]] std::string decode(std::vector<std::string> pieces) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mpt
