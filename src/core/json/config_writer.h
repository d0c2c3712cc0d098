// Config struct → JSON, by the struct's field list (config_fields.h): every key with its value,
// defaults included.
//
// Omits optionals without a value and keys that are meaningless given the others, so that reading
// the output gives an equal struct.
#pragma once

#include <string>
#include <vector>

#include "core/json/config_fields.h"
#include "core/json/config_lists.h"
#include "core/json/json_parse.h"

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
  static Json value_of(const NamedNumbers& member) { return object_of(member); }
  static Json value_of(const NamedTexts& member) {
    if (member.empty()) return Json::array();
    return member.front().first.empty() ? Json(member.front().second) : object_of(member);
  }
  template <HasFields S>
  static Json value_of(const std::vector<S>& member) {
    Json list = Json::array();
    for (const S& item : member) {
      if constexpr (OfTexts<S>)
        if (const auto* texts = item.as_texts()) return *texts;
      list.push_back(write(item));
    }
    return list;
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
  template <class T>
  static Json object_of(const std::vector<std::pair<std::string, T>>& named) {
    Json object = Json::object();
    for (const auto& [name, value] : named) object[name] = value;
    return object;
  }

  Json json_ = Json::object();
};

// Config struct → JSON Schema (draft 2020-12), by the struct's field list (config_fields.h).
//
// Describes any config file, included pieces too: names, types, ranges, accepted names, defaults,
// documentation. Required keys are only marked in the description, since an included piece may set
// them. Every key may be null: not given.

class FieldSchema {
 public:
  template <HasFields S>
  static Json of(S defaults) {
    FieldSchema schema;
    defaults.fields(schema);
    return Json{{"type", Json::array({"object", "null"})},
                {"additionalProperties", false},
                {"properties", std::move(schema.properties_)}};
  }

  template <class T>
  void required(const char* key, const T& member, const FieldInfo& info = {}) {
    properties_[key] = property(member, info, "Required");
    add_former_name(key, info);
  }
  template <class T>
  void optional(const char* key, const T& member, const FieldInfo& info = {}) {
    Json& schema = properties_[key] = property(member, info, "");
    schema["default"] = FieldWriter::value_of(member);
    add_former_name(key, info);
  }
  // A key shared by several alternatives is described once and must have the same type, bounds and
  // meaning in all of them. Its default is omitted where the defaults differ.
  template <class... A>
  void choice(const char* key, const std::variant<A...>&, const FieldInfo& info = {}) {
    properties_[key] = {{"description", description(info, "Required")},
                        {"enum", Json::array({A::kName..., nullptr})}};
    const std::vector<Alternative> all{{A::kName, properties_of(A{})}...};
    add_alternatives(key, all);
  }
  template <class T>
  void optional(const char* key, const std::optional<T>& member, const FieldInfo& info = {}) {
    properties_[key] = property(member.value_or(T{}), info, "");
    add_former_name(key, info);
  }
  template <HasFields S>
  void section(const char* key, const S& member, std::string_view doc) {
    Json& schema = properties_[key] = Json{{"description", doc}};
    schema.update(of(member));
  }

 private:
  struct Alternative {
    std::string_view name;
    Json properties;
  };
  template <HasFields S>
  static Json properties_of(S defaults) {
    FieldSchema schema;
    defaults.fields(schema);
    return std::move(schema.properties_);
  }
  struct Owner {
    std::string_view name;
    Json schema;
  };
  void add_alternatives(std::string_view choice, const std::vector<Alternative>& all);
  static std::string descriptions(std::string_view choice, const std::vector<Owner>& owners,
                                  size_t alternatives);
  static std::string restricted(const std::string& text, std::string_view choice,
                                const std::string& names);

  template <class T>
  static Json property(const T& member, const FieldInfo& info, std::string_view need) {
    Json schema{{"description", description(info, need)}};
    schema.update(type_of(member));
    add_bounds(schema, info);
    return schema;
  }

  static Json type_of(bool) { return {{"type", {"boolean", "null"}}}; }
  static Json type_of(int64_t) { return {{"type", {"integer", "null"}}}; }
  static Json type_of(uint64_t) { return {{"type", {"integer", "null"}}, {"minimum", 0}}; }
  static Json type_of(double) { return {{"type", {"number", "null"}}}; }
  static Json type_of(const std::string&) { return {{"type", {"string", "null"}}}; }
  static Json type_of(const std::vector<std::string>&) {
    return {{"type", {"array", "string", "null"}}, {"items", {{"type", "string"}}}};
  }
  static Json type_of(const NamedNumbers&) {
    return {{"type", {"object", "null"}}, {"additionalProperties", {{"type", "number"}}}};
  }
  static Json type_of(const NamedTexts&) {
    return {{"type", {"array", "string", "object", "null"}},
            {"items", {{"type", "string"}}},
            {"additionalProperties",
             {{"type", {"array", "string", "null"}}, {"items", {{"type", "string"}}}}}};
  }
  template <HasFields S>
  static Json type_of(const std::vector<S>&) {
    Json item = of(S{});
    item["type"] = "object";
    if constexpr (!OfTexts<S>) return {{"type", {"array", "null"}}, {"items", std::move(item)}};
    item["type"] = {"object", "string"};
    return {{"type", {"array", "string", "null"}}, {"items", std::move(item)}};
  }
  template <NamedEnum E>
  static Json type_of(E) {
    Json names = EnumNames<E>::kNames;
    names.push_back(nullptr);
    return {{"enum", std::move(names)}};
  }

  // The former name accepts the same values and is marked deprecated, which editors strike through.
  void add_former_name(const char* key, const FieldInfo& info);
  static std::string description(const FieldInfo& info, std::string_view need);
  static void add_bounds(Json& schema, const FieldInfo& info);

  Json properties_ = Json::object();
};

}  // namespace mpt
