// Reads JSON into a config struct by the struct's field list (config_fields.h).
//
// Reports every problem, not just the first, as "file:line: key.path: what is wrong, what would be
// accepted": unknown keys (with the nearest valid one), wrong types, values out of range, unknown
// enum names, missing required keys, and keys made meaningless by another key's value. `null`
// counts as absent.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/config_fields.h"
#include "core/json/json_document.h"
#include "core/json/problems.h"

namespace mpt {

// "optimizer.eps (configs/base/adamw.json:4)": keys of an included base file that became
// meaningless because the including file chose another alternative of a Choice.
using LeftOut = std::vector<std::string>;

// A key or value as spelled by users of other programs, and its meaning here.
struct UsualSpelling {
  std::string_view written, meant;
};
struct UsualSpellings {
  std::span<const UsualSpelling> keys{};  // a key or a key path -> a key path
  std::span<const UsualSpelling>
      values{};  // for enums; entries not in the current enum are skipped
};

// Key path meant by another program's word, such as "lr" or "batch.size".
std::optional<std::string> key_meant_by(std::string_view word,
                                        std::span<const UsualSpelling> usual);

// Key paths of a struct: "optimizer", "optimizer.rule", ... Includes all alternatives of a choice,
// each path once.
std::vector<std::string> key_paths(const Fields& fields, const std::string& path = "");

// Renames keys written under former names (FieldInfo::former). Must run before anything reads the
// document.
void use_present_names(JsonDocument& document, const Fields& fields, const std::string& path = "");

// Sets the members from the document. Keys of alternatives not chosen are dropped and recorded in
// left_out if the choice was made in a file or setting above the one that wrote them; otherwise, or
// if left_out is null, they are problems, because they would be ignored.
void read_fields(const JsonDocument& document, const Fields& fields, Problems& problems,
                 const UsualSpellings& usual = {}, LeftOut* left_out = nullptr);

}  // namespace mpt
