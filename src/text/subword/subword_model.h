// Turns a word into ids: the key "model" of tokenizer.json.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace mpt {

class SubwordModel {
 public:
  SubwordModel() = default;
  SubwordModel(const SubwordModel&) = delete;
  SubwordModel& operator=(const SubwordModel&) = delete;
  virtual ~SubwordModel() = default;

  // Appends the ids of a word, which must be UTF-8 and not empty. Thread-safe.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace mpt
