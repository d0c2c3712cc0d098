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

}  // namespace mpt
