// Hash table from 64-bit keys to 64-bit values, in one block of memory.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/seeded_hash.h"

namespace mpt {

class IntTable {
 public:
  static constexpr uint64_t kNoKey = UINT64_MAX;  // not valid as a key

  // Replaces an earlier value.
  void insert(uint64_t key, uint64_t value) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    Entry& entry = entries_[index_of(key)];
    size_ += entry.key == kNoKey;
    entry = {key, value};
  }

  // Null if absent.
  [[nodiscard]] const uint64_t* find(uint64_t key) const {
    if (size_ == 0) return nullptr;
    const Entry& entry = entries_[index_of(key)];
    return entry.key == kNoKey ? nullptr : &entry.value;
  }

  [[nodiscard]] size_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t key = kNoKey;
    uint64_t value = 0;
  };

  // Index of the key, or of the free entry where it belongs.
  [[nodiscard]] size_t index_of(uint64_t key) const {
    const size_t mask = entries_.size() - 1;
    size_t i = seeded_hash(key, seed_) >> shift_;
    while (entries_[i].key != key && entries_[i].key != kNoKey) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Entry> old(entries_.empty() ? 16 : 2 * entries_.size());
    old.swap(entries_);
    shift_ = 64 - std::countr_zero(entries_.size());
    for (const Entry& entry : old)
      if (entry.key != kNoKey) entries_[index_of(entry.key)] = entry;
  }

  HashSeed seed_ = HashSeed::of_process();
  size_t size_ = 0;
  int shift_ = 64;
  std::vector<Entry> entries_;  // size 0 or a power of two; at most half full
};

}  // namespace mpt
