// "did you mean ...?": finds the known name that a mistyped one most likely means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

// Number of insertions, deletions, substitutions and swaps of adjacent letters that turn one text
// into the other.
int64_t edit_distance(std::string_view a, std::string_view b);

// The closest of `known` (the first if several are equally close); nullopt if all differ in more
// than a third of the letters.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known);

// At most `count` of `known`, most similar first: names that contain `name`, then the others by
// edit distance.
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known,
                                       int64_t count);

// Lower case, '-' replaced by '_': "BF16" -> "bf16".
std::string plain_spelling(std::string_view name);

}  // namespace mpt
