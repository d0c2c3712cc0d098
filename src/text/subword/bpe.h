// Byte pair encoding by ranked merges, in time n log n for a word of n symbols.
//
// Pairs of the lowest rank are merged first, from left to right, as in tokenizers and tiktoken.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/seeded_hash.h"
#include "text/subword/int_table.h"
#include "text/subword/subword_model.h"
#include "text/subword/vocabulary.h"

namespace mpt {

class Merges {
 public:
  struct Merge {
    uint32_t rank;
    int32_t joined;
  };

  // A later entry for the same pair replaces an earlier one.
  void add(int32_t left, int32_t right, Merge merge) {
    table_.insert(key_of(left, right), uint64_t{merge.rank} << 32 | uint32_t(merge.joined));
  }
  [[nodiscard]] bool find(int32_t left, int32_t right, Merge& merge) const {
    const uint64_t* const value = table_.find(key_of(left, right));
    if (value == nullptr) return false;
    merge = {uint32_t(*value >> 32), int32_t(uint32_t(*value))};
    return true;
  }

 private:
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{uint32_t(left)} << 32 | uint32_t(right);
  }
  IntTable table_;
};

enum class Symbols : uint8_t { kCharacters, kBytes };

struct BpeOptions {
  Symbols symbols = Symbols::kBytes;  // units of a word before the first merge
  bool byte_fallback = false;         // characters without a piece become pieces "<0x0A>"
  bool fuse_unknown = false;          // adjacent unknown pieces become one
  bool whole_words = false;           // a word that is a piece is not merged (ignore_merges)
  bool has_unknown = false;           // otherwise, characters without a piece are dropped
  int32_t unknown = -1;               // -1: not in the vocabulary; an error if needed
};

class Bpe : public SubwordModel {
 public:
  // With Symbols::kBytes, pieces are spelled as in byte_level_text().
  Bpe(const Vocabulary& vocabulary, Merges merges, const BpeOptions& options);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // Encoding of a character: its piece, the pieces of its bytes, or nothing known.
  struct Spelling {
    std::vector<int32_t> ids;
    bool in_vocabulary = false;
  };
  [[nodiscard]] int32_t id_of(std::string_view symbol) const;
  [[nodiscard]] Spelling spelling_of(std::string_view symbol) const;
  void append_symbols(std::string_view word, std::vector<int32_t>& ids) const;

  BpeOptions options_;
  Merges merges_;
  std::unordered_map<std::string, int32_t, SeededTextHash, std::equal_to<>>
      ids_;  // by their own bytes
  std::array<Spelling, 256> bytes_;
  std::array<int32_t, 256> fallback_;  // per byte; -1: none
  bool all_bytes_known_ = false;
};

}  // namespace mpt
