// Fast bulk encoding: matches Tokenizer::encode id for id, encoding word by word with a cache.
//
// tokenizer.json and tiktoken files say themselves what a word is. For SentencePiece, why it is
// exact: in a BPE model without pieces that have white space after another character, no merge
// crosses the boundary before a word's leading white space, so words encode independently. Whether
// a model is of this kind (BPE, byte fallback, no normalisation, no user-defined pieces: LLaMA's
// and those trained by `mpretrain tokenizer`) is read from the model; with any other model, text
// goes to SentencePiece whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "core/seeded_hash.h"
#include "data/subword/subword_tokenizer.h"
#include "data/tokenizer.h"

namespace mpt {

// Cache of the ids of words encoded before, shared by all encoding threads, because they meet the
// same words.

// A word and its hash, which several tables use.
struct HashedWord {
  explicit HashedWord(std::string_view word) : text(word), hash(SeededTextHash{}(word)) {}

  std::string_view text;
  size_t hash;
};

// Words and their ids in one block of memory with a hash table of offsets, so that a word needs no
// allocation or deallocation of its own.
class WordTable {
 public:
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool append(const HashedWord& word, std::vector<int32_t>& ids) const;
  void insert(const HashedWord& word, std::span<const int32_t> ids);  // no effect for a known word
  void clear();

 private:
  // A word's entry in the block: number of ids and of bytes, the ids, the text. The first number of
  // the block is unused.
  struct Place {
    uint32_t hash = 0;   // lower half of the word's hash
    uint32_t begin = 0;  // of the word in the block; 0: free

    [[nodiscard]] bool is_free() const { return begin == 0; }
  };

  [[nodiscard]] bool is_at(const Place& place, const HashedWord& word) const;
  // Index of the word, or of the free place where it belongs.
  [[nodiscard]] size_t index_of(const HashedWord& word) const;
  void grow();

  size_t size_ = 0;
  std::vector<Place> places_;  // size 0 or a power of two; at most half are taken
  std::vector<int32_t> block_;
};

// A word table split into stripes, each with its own lock. Thread-safe.
class WordCache {
 public:
  // Keeps at most about max_words: a full stripe is cleared.
  explicit WordCache(size_t max_words = size_t{1} << 19);

  // Appends the word's ids if it is known; returns whether it is.
  bool append(const HashedWord& word, std::vector<int32_t>& ids);
  void insert(const HashedWord& word, std::span<const int32_t> ids);

 private:
  struct alignas(64) Stripe {
    std::mutex mutex;
    WordTable words;
  };
  static constexpr size_t kStripes = 64;
  static constexpr int kStripeShift = 58;  // the hash's upper 6 bits; tables use the lower half

  Stripe& stripe_of(const HashedWord& word) { return stripes_[word.hash >> kStripeShift]; }

  size_t max_words_of_stripe_;
  std::array<Stripe, kStripes> stripes_;
};

// Most recent words of one thread, in front of the shared cache: covers most of a text, without
// locks and with one cache line per word. Long words are not kept.
class RecentWords {
 public:
  bool append(const HashedWord& word, std::vector<int32_t>& ids) const {
    const Entry& entry = entries_[word.hash % kEntries];
    if (std::string_view(entry.text, entry.bytes) != word.text || word.text.empty()) return false;
    ids.insert(ids.end(), entry.ids, entry.ids + entry.count);
    return true;
  }
  void insert(const HashedWord& word, std::span<const int32_t> ids) {
    if (word.text.size() > sizeof Entry::text || ids.size() > std::size(Entry{}.ids)) return;
    Entry& entry = entries_[word.hash % kEntries];
    entry.bytes = static_cast<uint8_t>(word.text.copy(entry.text, sizeof entry.text));
    entry.count = static_cast<uint8_t>(std::copy(ids.begin(), ids.end(), entry.ids) - entry.ids);
  }

 private:
  static constexpr size_t kEntries = 32768;
  struct alignas(64) Entry {
    int32_t ids[8];
    char text[30];
    uint8_t bytes = 0, count = 0;
  };

  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

// Whether words can be encoded one by one; `model` is the content of a SentencePiece model file.
bool words_are_independent(std::string_view model);

// For one thread. Tokenizer and cache must outlive it and may be shared between threads.
class TextEncoder {
 public:
  // `special`: see tokenizer.json in docs/formats.md; of no effect for other files.
  TextEncoder(const Tokenizer& tokenizer, WordCache& words,
              SpecialTokens special = SpecialTokens::kMatch);

  // Appends the ids of `text`, without BOS and EOS.
  void append(std::string_view text, std::vector<int32_t>& ids);
  [[nodiscard]] bool word_by_word() const { return word_by_word_; }

 private:
  void append_subwords(std::string_view text, std::vector<int32_t>& ids);
  void append_word(std::string_view word, std::vector<int32_t>& ids);
  void append_new_word(const HashedWord& word, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  WordCache& words_;
  SpecialTokens special_;
  RecentWords recent_;
  TextPieces pieces_;  // of a text
  bool word_by_word_;
};

}  // namespace mpt
