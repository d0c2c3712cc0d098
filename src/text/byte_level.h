// Bytes spelled as printable characters, as in GPT-2's vocabulary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mpt {

std::string byte_level_text(std::string_view bytes);
// Returns nullopt if the text has other characters.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

}  // namespace mpt
