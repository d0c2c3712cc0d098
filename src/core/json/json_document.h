// A JSON document merged from several files and command-line settings, which knows where every key came from.
//
//   "include": ["base/350m.json", "base/bf16.json"]   at top level: pieces merged left to right, this file's
//                                                     keys on top; paths are relative to the file naming
//                                                     them, or else to one of the directories given to load()
//   document.set("optimizer.eps=1e-10")               one key on top of everything
//
// Objects merge key by key; every other value replaces what was there. `null` unsets a key that a piece has
// set. A top-level "$schema" (for editors) is left out. Guarantees: any text, path or cycle ends in a
// document or an Error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json_parse.h"

namespace mpt {

class JsonDocument {
 public:
  static JsonDocument load(const std::string& path, const std::vector<std::string>& directories = {});
  // A value that was not read from a file of its own; messages call it `name`.
  static JsonDocument of_value(Json value, std::string name);

  // "a.b=value": the value is JSON; what is not JSON is a string.
  void set(std::string_view assignment);

  // Moves the value of `former`, if there is one, to `present`; both are keys of the same section. Of two
  // values the one that is_above() the other counts; where neither is, throws an Error that names both
  // places.
  void rename(std::string_view former, std::string_view present);

  [[nodiscard]] const Json& root() const { return root_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Whether the first key was written above the second one, that is by a file that includes the one that
  // wrote the second, or by a later setting. Keys that nobody wrote are above none.
  [[nodiscard]] bool is_above(std::string_view key_path, std::string_view other) const;
  // Where the key was written last: "configs/a.json:12" or "--set a.b=c"; for a key that nobody wrote, where
  // the nearest section around it was, and in the end the name of the file.
  [[nodiscard]] std::string source_of(std::string_view key_path) const;

 private:
  friend class DocumentLoader;
  // Text for messages, and when it was merged: what comes later lies above.
  struct Source {
    std::string text;
    int64_t order = 0;
  };
  using Sources = std::map<std::string, Source, std::less<>>;
  void merge(const Json& value, Sources sources);
  // The section that holds the key; null: there is none.
  Json* section_of(std::string_view key_path);

  std::string name_;
  Json root_ = Json::object();
  Sources sources_;
  int64_t merged_ = 0;  // files and settings
};

}  // namespace mpt
