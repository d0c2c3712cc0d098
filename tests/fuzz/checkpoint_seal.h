// state.json of a checkpoint with matching sizes, hashes and checksum, so that inputs get past
// them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "core/io/hash.h"
#include "core/json/json_parse.h"
#include "fuzz/input_directory.h"

namespace mpt::fuzz {

// Names the files as in the directory and fills in their sizes and hashes.
inline void name_files(nlohmann::json& state, std::span<const std::string_view> files) {
  if (!state.contains("files") || !state["files"].is_array()) return;
  for (size_t i = 0; i < std::min(files.size(), state["files"].size()); ++i) {
    nlohmann::json& file = state["files"][i];
    if (!file.is_object()) continue;
    file["name"] = rank_file_name(static_cast<int64_t>(i), std::ssize(files));
    file["bytes"] = files[i].size();
    file["hash"] = hash_bytes(bytes_of(files[i]));
  }
}

// A text that is no JSON object is unchanged.
inline std::string sealed(std::string_view text, std::span<const std::string_view> files = {}) try {
  nlohmann::json state = parse_plain_json(text, kStateName);
  if (!state.is_object()) return std::string(text);
  const auto dump = [&] {
    return state.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  name_files(state, files);
  state.erase("checksum");
  state["checksum"] = hash_bytes(bytes_of(dump()));
  return dump();
} catch (const Error&) {
  return std::string(text);
}

}  // namespace mpt::fuzz
