// "did you mean ...?": the known name that a mistyped one most likely stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
int64_t edit_distance(std::string_view a, std::string_view b);

// The closest of `known`, the first of equals; nothing if all differ in more than a third of the letters.
std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& known);

// At most `count` of `known`, the most alike first: those that `name` is part of, then by distance.
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known, int64_t count);

// In lower case, with '_' for '-': "BF16" -> "bf16".
std::string plain_spelling(std::string_view name);

}  // namespace mpt
