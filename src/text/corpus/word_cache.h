// Cache of the ids of encoded words, shared by all encoding threads, because they see the same
// words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "core/seeded_hash.h"

namespace mpt {

// A word and its hash, which several tables use.
struct HashedWord {
  explicit HashedWord(std::string_view word) : text(word), hash(SeededTextHash{}(word)) {}

  std::string_view text;
  size_t hash;
};

// Words and their ids in one block of memory with a hash table of offsets, so that words need no
// allocations of their own.
class WordTable {
 public:
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool append(const HashedWord& word, std::vector<int32_t>& ids) const;
  void insert(const HashedWord& word, std::span<const int32_t> ids);  // no effect if already
                                                                      // present
  void clear();

 private:
  // Location of a word's entry in the block: number of ids and of bytes, the ids, the text. The
  // first number of the block is unused.
  struct Place {
    uint32_t hash = 0;   // lower half of the word's hash
    uint32_t begin = 0;  // start of the word in the block; 0: free

    [[nodiscard]] bool is_free() const { return begin == 0; }
  };

  [[nodiscard]] bool is_at(const Place& place, const HashedWord& word) const;
  // Index of the word, or of the free slot where it belongs.
  [[nodiscard]] size_t index_of(const HashedWord& word) const;
  void grow();

  size_t size_ = 0;
  std::vector<Place> places_;  // size 0 or a power of two; at most half full
  std::vector<int32_t> block_;
};

// A word table split into stripes, each with its own lock. Thread-safe.
class WordCache {
 public:
  // Keeps about max_words at most: a full stripe is cleared.
  explicit WordCache(size_t max_words = size_t{1} << 19);

  // Appends the word's ids and returns true if the word is present.
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

// One thread's most recent words, in front of the shared cache: covers most of a text, without
// locks and with one cache line per word. Does not keep long words.
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

}  // namespace mpt
