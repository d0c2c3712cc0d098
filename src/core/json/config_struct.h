// What a config struct needs for its declaration: the name Fields, for `void fields(Fields&)`
// (config_fields.h), and types of members that hold several things. A std::vector of structs with
// fields is another.
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

// {"name": 1.5, ...}, in the order in which they are written.
using NamedNumbers = std::vector<std::pair<std::string, double>>;
// {"name": ["text", ...], ...}; also a text or a list of texts alone, which then has the name "".
using NamedTexts = std::vector<std::pair<std::string, std::vector<std::string>>>;

// A struct that a list of texts may stand for in place of a list of such structs: S::of_texts(list)
// makes it, and as_texts() gives that list back, or null for one written as a struct.
template <class S>
concept OfTexts = requires(const S& s, std::vector<std::string> texts) {
  { S::of_texts(texts) } -> std::same_as<S>;
  { s.as_texts() } -> std::same_as<const std::vector<std::string>*>;
};

}  // namespace mpt
