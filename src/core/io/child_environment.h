// The environment and the arguments of a process to be started, as exec and posix_spawn take them.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace mpt {

// This process's environment with `changes` made and the variables `without` left out.
inline std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes,
                                                 std::span<const std::string_view> without = {}) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    if (!changes.contains(name) && std::ranges::find(without, name) == without.end())
      all.push_back(text);
  }
  for (const auto& [name, value] : changes) all.push_back(name + "=" + value);
  return all;
}

// Pointers to the texts, which must outlive them, and a null pointer.
inline std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace mpt
