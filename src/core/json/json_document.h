// JSON document merged from several files and command-line settings; records the origin of every
// key.
//
//   "include": ["base/350m.json", "base/bf16.json"]   at top level: pieces merged left to right,
//                                                     this file's keys on top; paths are
//                                                     relative to the including file, or else to
//                                                     one of the directories given to load()
//   document.set("optimizer.eps=1e-10")               one key on top of everything
//
// Objects merge key by key; every other value replaces the earlier one. `null` unsets a key set by
// a piece. A top-level "$schema" (for editors) is dropped. Any text, path or cycle of includes
// yields a document or an Error.
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
  static JsonDocument load(const std::string& path,
                           const std::vector<std::string>& directories = {});
  // Wraps a value that has no file of its own; messages call it `name`.
  static JsonDocument of_value(Json value, std::string name);

  // "a.b=value": parses the value as JSON, or else takes it as a string.
  void set(std::string_view assignment);

  // Moves the value of `former`, if present, to `present`; both are keys of the same section. If
  // both have a value, the one that is_above() the other wins; if neither is above, throws Error
  // naming both places.
  void rename(std::string_view former, std::string_view present);

  // Length of the list at a key path; 0 if there is no list.
  [[nodiscard]] size_t length_of(std::string_view list);

  // Copies the document's value of `key`, with its sources, into every object of the list that has
  // none. `list` and `key` are at the top level. Throws Error if that would copy more than 4 MiB.
  void inherit(std::string_view list, std::string_view key);

  [[nodiscard]] const Json& root() const { return root_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Whether the first key overrides the second by position: its file includes the file that wrote
  // the second, or it was set by a later setting. A key never written is above none.
  [[nodiscard]] bool is_above(std::string_view key_path, std::string_view other) const;
  // Where the key was last written: "configs/a.json:12" or "--set a.b=c". For a key never written,
  // the place of the nearest enclosing section, or failing that the name of the file.
  [[nodiscard]] std::string source_of(std::string_view key_path) const;

 private:
  friend class DocumentLoader;
  // Text for messages, and the merge number: later merges are above earlier ones.
  struct Source {
    std::string text;
    int64_t order = 0;
  };
  using Sources = std::map<std::string, Source, std::less<>>;
  void merge(const Json& value, Sources sources);
  // Null if there is no such value. List elements have their index as key.
  Json* find(std::string_view key_path);
  // Section containing the key; null if there is none.
  Json* section_of(std::string_view key_path);

  std::string name_;
  Json root_ = Json::object();
  Sources sources_;
  int64_t merged_ = 0;  // number of files and settings
};

}  // namespace mpt
