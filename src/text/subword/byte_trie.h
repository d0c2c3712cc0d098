// Trie that finds which of many texts are prefixes of another text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/subword/int_table.h"

namespace mpt {

class ByteTrie {
 public:
  // `text` must not be empty; a later value replaces an earlier one.
  void insert(std::string_view text, int32_t value) {
    uint64_t node = 0;
    first_[static_cast<unsigned char>(text[0])] = true;
    for (const char byte : text) {
      const uint64_t key = key_of(node, byte);
      if (const uint64_t* const next = steps_.find(key)) {
        node = *next;
      } else {
        node = values_.size();
        steps_.insert(key, node);
        values_.push_back(kNone);
      }
    }
    values_[node] = value;
  }

  // Calls found(bytes, value) for each text that is a prefix of `text`, shortest first.
  template <class F>
  void prefixes(std::string_view text, const F& found) const {
    uint64_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint64_t* const next = steps_.find(key_of(node, text[i]));
      if (next == nullptr) return;
      node = *next;
      if (values_[node] != kNone) found(i + 1, values_[node]);
    }
  }

  [[nodiscard]] bool empty() const { return values_.size() == 1; }
  // First position at or after `at` where a text may begin; the end of `text` if there is none.
  [[nodiscard]] size_t next_begin(std::string_view text, size_t at) const {
    while (at < text.size() && !first_[static_cast<unsigned char>(text[at])]) ++at;
    return at;
  }

 private:
  static constexpr int32_t kNone = -1;
  static uint64_t key_of(uint64_t node, char byte) {
    return node << 8 | static_cast<unsigned char>(byte);
  }

  std::array<bool, 256> first_{};  // first bytes of the texts
  IntTable steps_;
  std::vector<int32_t> values_{kNone};  // per node
};

}  // namespace mpt
