// Scans one untrusted JSON value into a parser's events.
//
// Accepts what RFC 8259 allows at any depth, in one bit of memory per level, plus NaN, Infinity and
// -Infinity, which Python's json writes. A number beyond double is infinite. Texts are passed on as
// written, so that one nobody needs causes no failure: half of a surrogate pair as its three bytes,
// and bytes that are not UTF-8. Users of a text call defect_of_text().
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace mpt {

using JsonSax = nlohmann::json_sax<nlohmann::json>;

// Throws Error with the column, what was expected and what was found. Ignores the return values of
// the events.
void scan_json(std::string_view text, JsonSax& events);

// Why the text is not UTF-8, phrased to follow a field's name: "has half of a surrogate pair ...";
// "" if it is.
std::string defect_of_text(std::string_view text);

}  // namespace mpt
