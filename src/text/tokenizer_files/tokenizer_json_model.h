// The key "model" of tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>

#include <nlohmann/json.hpp>

#include "core/json/json_node.h"
#include "text/subword/bpe.h"
#include "text/subword/subword_model.h"
#include "text/subword/vocabulary.h"

namespace mpt {

struct ReadModel {
  std::unique_ptr<Vocabulary> vocabulary;
  std::unique_ptr<SubwordModel> model;
  int64_t unknown = -1;  // -1: none
  bool byte_fallback = false;
};

// Reads BPE or Unigram. Throws Error naming the key, what was found and what would be accepted.
ReadModel read_model(const JsonNode& node, Symbols symbols);

// Whether an entry of "merges" is the version line that some files begin with.
bool is_version(const nlohmann::json& merge);

}  // namespace mpt
