// JSON value that knows its path, for messages such as "tokenizer.json: model.vocab: found null;
// expected an object".
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/enum_names.h"

namespace mpt {

class JsonList;

class JsonNode {
 public:
  // Both must outlive the node.
  JsonNode(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_null() const { return value_->is_null(); }

  // A missing value is null. Throws Error if the path gets too long (kMaxJsonPathBytes).
  [[nodiscard]] JsonNode operator[](const std::string& key) const;
  [[nodiscard]] JsonList list() const;
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] bool flag_or(bool otherwise) const { return is_null() ? otherwise : flag(); }
  // From 0 to INT32_MAX.
  [[nodiscard]] int64_t count() const;
  [[nodiscard]] double number() const;
  template <class Enum>
  [[nodiscard]] Enum name() const;

  // Throws unless it is an object with no other keys; "type" is always allowed.
  void require_keys(std::initializer_list<std::string_view> keys) const;
  void require_null(std::string_view why) const;
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

// Elements of a list; their paths are built only one at a time. The list must outlive it.
class JsonList {
 public:
  JsonList(const nlohmann::json& list, std::string path) : list_(&list), path_(std::move(path)) {}

  [[nodiscard]] size_t size() const { return list_->size(); }
  [[nodiscard]] bool empty() const { return list_->empty(); }
  [[nodiscard]] JsonNode operator[](size_t i) const {
    return {(*list_)[i], fmt::format("{}[{}]", path_, i)};
  }

  struct Iterator {
    const JsonList* list;
    size_t at;
    JsonNode operator*() const { return (*list)[at]; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, size()}; }

 private:
  const nlohmann::json* list_;
  std::string path_;
};

template <class Enum>
Enum JsonNode::name() const {
  const std::string& found = text();
  const auto& names = EnumNames<Enum>::kNames;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == found) return Enum(i);
  refuse(fmt::format("expected one of {}", fmt::join(names, ", ")));
}

}  // namespace mpt
