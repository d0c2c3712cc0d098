// What a model's own files say about its texts: which tokens begin, end and pad them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace mpt {

// Special tokens, as in Hugging Face's files: each a number, a list of numbers, or null, which also
// means unspecified.
struct SpecialIds {
  nlohmann::json bos, eos, pad;

  // Returns those of `ids` in [0, vocab_size).
  static std::vector<int64_t> within(const nlohmann::json& ids, int64_t vocab_size);
  // Returns the first of them; -1 if there is none.
  static int64_t first(const nlohmann::json& ids, int64_t vocab_size);
};

// Their keys in config.json and generation_config.json.
inline constexpr std::array<std::pair<const char*, nlohmann::json SpecialIds::*>, 3> kSpecialIdKeys{
    {{"bos_token_id", &SpecialIds::bos},
     {"eos_token_id", &SpecialIds::eos},
     {"pad_token_id", &SpecialIds::pad}}};

// A number outside every vocabulary is one, too: -1 stands for no token.
inline bool is_token_id(const auto& value) {
  if (value.is_number_unsigned()) return value.template get<uint64_t>() <= INT32_MAX;
  return value.is_number_integer() && value.template get<int64_t>() >= INT32_MIN;
}
inline bool are_token_ids(const auto& value) {
  constexpr size_t kMost = 64;
  if (!value.is_array()) return value.is_null() || is_token_id(value);
  return value.size() <= kMost &&
         std::all_of(value.begin(), value.end(), [](const auto& id) { return is_token_id(id); });
}

inline constexpr const char* kSourceTexts = "source_texts";  // in a checkpoint's extra state

// A model's own settings for its texts, kept in the state of an imported checkpoint and of
// checkpoints made from its weights without training.
struct SourceTexts {
  bool begin_with_bos = false;
  SpecialIds ids{};

  [[nodiscard]] nlohmann::json json() const;
  // Ignores values whose shape is not that of json().
  static SourceTexts of_json(const nlohmann::json& json);
};

}  // namespace mpt
