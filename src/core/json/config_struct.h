// Everything a config struct needs for its declaration: the name Fields, for `void fields(Fields&)`
// (config_fields.h), and types of compound members. A std::vector of structs with fields is
// another.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/enum_names.h"

namespace mpt {

class Fields;

// {"name": 1.5, ...}, in the order written.
using NamedNumbers = std::vector<std::pair<std::string, double>>;
// {"name": ["text", ...], ...}; also just a text or a list of texts, which then has the name "".
using NamedTexts = std::vector<std::pair<std::string, std::vector<std::string>>>;

// A struct for which a list of texts may replace a list of such structs: S::of_texts(list) makes
// it, and as_texts() returns that list, or null if it was written as a struct.
template <class S>
concept OfTexts = requires(const S& s, std::vector<std::string> texts) {
  { S::of_texts(texts) } -> std::same_as<S>;
  { s.as_texts() } -> std::same_as<const std::vector<std::string>*>;
};

}  // namespace mpt
