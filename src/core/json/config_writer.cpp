#include "core/json/config_writer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/check.h"
#include "core/json/json_parse.h"

namespace mpt {
namespace {

// --- writing -------------------------------------------------------------------------------------

template <class T>
Json object_of(const std::vector<std::pair<std::string, T>>& named) {
  Json object = Json::object();
  for (const auto& [name, value] : named) object[name] = value;
  return object;
}

Json list_of(StructList& structs) {
  Json list = Json::array();
  for (size_t i = 0; i < structs.size(); ++i) {
    if (const auto* texts = structs.texts_of(i)) return *texts;
    list.push_back(write_fields(structs.fields_of(i)));
  }
  return list;
}

// Value of a member; null if it has none.
struct ValueOf {
  template <class T>
  Json operator()(const T* member) const {
    return *member;
  }
  template <class T>
  Json operator()(const std::optional<T>* member) const {
    return *member ? Json(**member) : Json();
  }
  Json operator()(const NamedNumbers* member) const { return object_of(*member); }
  Json operator()(const NamedTexts* member) const {
    if (member->empty()) return Json::array();
    return member->front().first.empty() ? Json(member->front().second) : object_of(*member);
  }
  Json operator()(const EnumMember& member) const { return member.name(); }
  Json operator()(const std::shared_ptr<StructList>& member) const { return list_of(*member); }
  Json operator()(const std::shared_ptr<Fields>& section) const { return write_fields(*section); }
  Json operator()(const Choice* choice) const { return choice->names()[choice->chosen()]; }
};

Json value_of(const Member& member) { return std::visit(ValueOf{}, member); }

}  // namespace

Json write_fields(const Fields& fields) {
  Json json = Json::object();
  for (const Field& field : fields) {
    if (!field.info.condition().holds()) continue;
    Json value = value_of(field.member);
    if (value.is_null()) continue;
    json[field.key] = std::move(value);
    if (Choice* const* choice = std::get_if<Choice*>(&field.member))
      json.update(write_fields(Fields::of(**choice)));
  }
  return json;
}

// --- schema --------------------------------------------------------------------------------------

namespace {

// 1, not 1.0, for integral bounds.
Json number(double value) {
  return std::abs(value) < 0x1p53 && value == std::trunc(value) ? Json(static_cast<int64_t>(value))
                                                                : Json(value);
}

std::string description(const FieldInfo& info, std::string_view need) {
  const Condition& condition = info.condition();
  if (condition.key.empty())
    return need.empty() ? std::string(info.doc) : fmt::format("{}. {}", need, info.doc);
  return fmt::format("{} with {} = {}. {}", need.empty() ? "Only" : need, condition.key,
                     condition.accepted_names(), info.doc);
}

void add_bounds(Json& schema, const FieldInfo& info) {
  if (info.minimum) schema["minimum"] = number(*info.minimum);
  if (info.exclusive_minimum) schema["exclusiveMinimum"] = number(*info.exclusive_minimum);
  if (info.maximum) schema["maximum"] = number(*info.maximum);
  if (info.exclusive_maximum) schema["exclusiveMaximum"] = number(*info.exclusive_maximum);
}

Json schema_of_list(StructList& structs) {
  Json item = schema_of_fields(structs.default_fields());
  item["type"] = "object";
  if (!structs.takes_texts()) return {{"type", {"array", "null"}}, {"items", std::move(item)}};
  item["type"] = {"object", "string"};
  return {{"type", {"array", "string", "null"}}, {"items", std::move(item)}};
}

struct TypeOf {
  Json operator()(const bool*) const { return {{"type", {"boolean", "null"}}}; }
  Json operator()(const int64_t*) const { return {{"type", {"integer", "null"}}}; }
  Json operator()(const uint64_t*) const { return {{"type", {"integer", "null"}}, {"minimum", 0}}; }
  Json operator()(const double*) const { return {{"type", {"number", "null"}}}; }
  Json operator()(const std::string*) const { return {{"type", {"string", "null"}}}; }
  Json operator()(const std::vector<std::string>*) const {
    return {{"type", {"array", "string", "null"}}, {"items", {{"type", "string"}}}};
  }
  Json operator()(const NamedNumbers*) const {
    return {{"type", {"object", "null"}}, {"additionalProperties", {{"type", "number"}}}};
  }
  Json operator()(const NamedTexts*) const {
    return {{"type", {"array", "string", "object", "null"}},
            {"items", {{"type", "string"}}},
            {"additionalProperties",
             {{"type", {"array", "string", "null"}}, {"items", {{"type", "string"}}}}}};
  }
  template <class T>
  Json operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
  Json operator()(const EnumMember& member) const {
    Json names = member.names;
    names.push_back(nullptr);
    return {{"enum", std::move(names)}};
  }
  Json operator()(const std::shared_ptr<StructList>& member) const {
    return schema_of_list(*member);
  }
  Json operator()(const std::shared_ptr<Fields>& section) const {
    return schema_of_fields(*section);
  }
  Json operator()(const Choice* choice) const {
    Json names = choice->names();
    names.push_back(nullptr);
    return {{"enum", std::move(names)}};
  }
};

// The keys of one alternative of a choice, or of the only alternative that has this key.
struct Owner {
  std::string_view name;
  Json schema;
};

Json properties_of(const Fields& fields);

std::vector<Owner> alternatives_of(const Choice& choice) {
  std::vector<Owner> all;
  each_alternative(choice, [&](Choice& other) {
    all.push_back({other.names()[other.chosen()], properties_of(Fields::of(other))});
  });
  return all;
}

// "Required. x" -> "Required with rule = a or b. x"; "x" -> "Only with rule = a or b. x". A
// condition already stated inside the alternative suffices.
std::string restricted(const std::string& text, std::string_view choice, const std::string& names) {
  constexpr std::string_view kRequired = "Required. ";
  if (text.starts_with("Only with ")) return text;
  const bool required = text.starts_with(kRequired);
  return fmt::format("{} with {} = {}. {}", required ? "Required" : "Only", choice, names,
                     required ? text.substr(kRequired.size()) : text);
}

// "x"; "Only with rule = a or b. x" if other alternatives lack the key; "With rule = a: x; with
// rule = b: y".
std::string descriptions(std::string_view choice, const std::vector<Owner>& owners,
                         size_t alternatives) {
  std::vector<std::pair<std::string, std::vector<std::string_view>>> groups;
  for (const Owner& owner : owners) {
    const std::string text = owner.schema["description"];
    const auto found =
        std::ranges::find(groups, text, [](const auto& group) { return group.first; });
    if (found == groups.end())
      groups.push_back({text, {owner.name}});
    else
      found->second.push_back(owner.name);
  }
  const auto& [text, names] = groups.front();
  if (groups.size() == 1)
    return names.size() == alternatives
               ? text
               : restricted(text, choice, fmt::format("{}", fmt::join(names, " or ")));
  std::string all;
  for (const auto& [description, of] : groups)
    all += fmt::format("{} {} = {}: {}", all.empty() ? "With" : "; with", choice,
                       fmt::join(of, " or "), description);
  return all;
}

// Alternatives may differ only in descriptions and defaults; differing defaults are omitted.
void add_alternatives(Json& properties, std::string_view choice, const std::vector<Owner>& all) {
  std::vector<std::pair<std::string, std::vector<Owner>>> keys;  // in declaration order
  for (const Owner& alternative : all)
    for (const auto& item : alternative.schema.items()) {
      auto found = std::ranges::find(keys, item.key(), [](const auto& one) { return one.first; });
      if (found == keys.end()) found = keys.insert(keys.end(), {item.key(), {}});
      found->second.push_back({alternative.name, item.value()});
    }
  for (auto& [key, of_key] : keys) {
    check(!properties.contains(key), "key {} of {} = {} is already a key of the section", key,
          choice, of_key.front().name);
    const std::string description = descriptions(choice, of_key, all.size());
    Json schema = of_key.front().schema;
    for (const Owner& owner : of_key)
      if (owner.schema.value("default", Json()) != schema.value("default", Json()))
        schema.erase("default");
    schema.erase("description");
    for (Owner& owner : of_key) {
      owner.schema.erase("description");
      if (!schema.contains("default")) owner.schema.erase("default");
      check(owner.schema == schema, "key {} differs: with {} = {} it is {}, but {} with {}", key,
            choice, of_key.front().name, json_text(schema), json_text(owner.schema), owner.name);
    }
    properties[key] = Json{{"description", description}};
    properties[key].update(schema);
  }
}

// The former name accepts the same values and is marked deprecated; editors strike it through.
void add_former_name(Json& properties, const Field& field) {
  if (field.info.former.empty()) return;
  Json schema = properties[field.key];
  schema["description"] = fmt::format("Former name of {}.", field.key);
  schema["deprecated"] = true;
  schema.erase("default");
  properties[std::string(field.info.former)] = std::move(schema);
}

Json property_of(const Field& field) {
  const bool is_section = std::holds_alternative<std::shared_ptr<Fields>>(field.member);
  Json schema{{"description", description(field.info, field.is_required ? "Required" : "")}};
  schema.update(std::visit(TypeOf{}, field.member));
  add_bounds(schema, field.info);
  if (field.is_required || is_section) return schema;
  if (Json value = value_of(field.member); !value.is_null()) schema["default"] = std::move(value);
  return schema;
}

Json properties_of(const Fields& fields) {
  Json properties = Json::object();
  for (const Field& field : fields) {
    properties[field.key] = property_of(field);
    add_former_name(properties, field);
    if (Choice* const* choice = std::get_if<Choice*>(&field.member))
      add_alternatives(properties, field.key, alternatives_of(**choice));
  }
  return properties;
}

}  // namespace

Json schema_of_fields(const Fields& defaults) {
  return Json{{"type", Json::array({"object", "null"})},
              {"additionalProperties", false},
              {"properties", properties_of(defaults)}};
}

}  // namespace mpt
