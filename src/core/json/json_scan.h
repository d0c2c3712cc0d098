// One JSON value as strangers write it, into the events of a parser.
//
// Takes what RFC 8259 allows at any depth, in memory of a bit a level, and also NaN, Infinity and
// -Infinity, which Python's json writes. A number beyond double is infinite. Texts are handed on as
// they are written, so that one that nobody needs stops nothing: half of a surrogate pair as its
// three bytes, and bytes that are not UTF-8. Who uses a text asks defect_of_text().
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace mpt {

using JsonSax = nlohmann::json_sax<nlohmann::json>;

// Throws Error with the column, what was expected and what was found. What the events return is
// not looked at.
void scan_json(std::string_view text, JsonSax& events);

// Why it is not UTF-8, to follow the name of a field: "has half of a surrogate pair ..."; "" if it
// is.
std::string defect_of_text(std::string_view text);

}  // namespace mpt
