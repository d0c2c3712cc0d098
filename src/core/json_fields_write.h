// Config struct → JSON, by the struct's field list (json_fields.h): every key with its value, defaults
// included.
//
// Left out are optionals without a value and keys that have no meaning beside the others, so that what is
// written can be read again and gives an equal struct.
#pragma once

#include <string>

#include "core/json_fields.h"
#include "core/json_parse.h"

namespace mpt {

class FieldWriter {
 public:
  template <HasFields S>
  static Json write(S config) {
    FieldWriter writer;
    config.fields(writer);
    return std::move(writer.json_);
  }
  template <class T>
  static Json value_of(const T& member) {
    return member;
  }
  template <NamedEnum E>
  static Json value_of(const E& member) {
    return name_of(member);
  }

  template <class T>
  void required(const char* key, const T& member, const FieldInfo& info = {}) {
    if (info.only_with.holds) json_[key] = value_of(member);
  }
  template <class T>
  void optional(const char* key, const T& member, const FieldInfo& info = {}) {
    required(key, member, info);
  }
  template <class T>
  void optional(const char* key, const std::optional<T>& member, const FieldInfo& info = {}) {
    if (member) required(key, *member, info);
  }
  template <HasFields S>
  void section(const char* key, const S& member, std::string_view) {
    json_[key] = write(member);
  }
  template <class... A>
  void choice(const char* key, const std::variant<A...>& member, const FieldInfo& = {}) {
    std::visit(
        [&](const auto& chosen) {
          json_[key] = chosen.kName;
          json_.update(write(chosen));
        },
        member);
  }

 private:
  Json json_ = Json::object();
};

}  // namespace mpt
