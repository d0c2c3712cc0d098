#include "core/json/config_writer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/check.h"

namespace mpt {
namespace {

// 1, not 1.0, for bounds that are whole numbers.
Json number(double value) {
  return std::abs(value) < 0x1p53 && value == std::trunc(value) ? Json(static_cast<int64_t>(value))
                                                                : Json(value);
}

}  // namespace

std::string FieldSchema::description(const FieldInfo& info, std::string_view need) {
  const Condition& condition = info.only_with;
  if (condition.key.empty())
    return need.empty() ? std::string(info.doc) : fmt::format("{}. {}", need, info.doc);
  return fmt::format("{} with {} = {}. {}", need.empty() ? "Only" : need, condition.key,
                     condition.accepted, info.doc);
}

// Alternatives may differ only in descriptions and defaults; a default that differs is omitted.
void FieldSchema::add_alternatives(std::string_view choice, const std::vector<Alternative>& all) {
  std::vector<std::pair<std::string, std::vector<Owner>>> keys;  // in the order of declaration
  for (const Alternative& alternative : all)
    for (const auto& item : alternative.properties.items()) {
      auto found = std::ranges::find(keys, item.key(), [](const auto& one) { return one.first; });
      if (found == keys.end()) found = keys.insert(keys.end(), {item.key(), {}});
      found->second.push_back({alternative.name, item.value()});
    }
  for (auto& [key, of_key] : keys) {
    check(!properties_.contains(key), "key {} of {} = {} is already a key of the section", key,
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
            choice, of_key.front().name, schema.dump(), owner.schema.dump(), owner.name);
    }
    properties_[key] = Json{{"description", description}};
    properties_[key].update(schema);
  }
}

// "x"; "Only with rule = a or b. x" if other alternatives lack the key; "With rule = a: x; with
// rule = b: y".
std::string FieldSchema::descriptions(std::string_view choice, const std::vector<Owner>& owners,
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

// "Required. x" -> "Required with rule = a or b. x"; "x" -> "Only with rule = a or b. x". A
// condition already stated inside the alternative suffices.
std::string FieldSchema::restricted(const std::string& text, std::string_view choice,
                                    const std::string& names) {
  constexpr std::string_view kRequired = "Required. ";
  if (text.starts_with("Only with ")) return text;
  const bool required = text.starts_with(kRequired);
  return fmt::format("{} with {} = {}. {}", required ? "Required" : "Only", choice, names,
                     required ? text.substr(kRequired.size()) : text);
}

void FieldSchema::add_former_name(const char* key, const FieldInfo& info) {
  if (info.former.empty()) return;
  Json schema = properties_[key];
  schema["description"] = fmt::format("Former name of {}.", key);
  schema["deprecated"] = true;
  schema.erase("default");
  properties_[std::string(info.former)] = std::move(schema);
}

void FieldSchema::add_bounds(Json& schema, const FieldInfo& info) {
  if (info.minimum) schema["minimum"] = number(*info.minimum);
  if (info.exclusive_minimum) schema["exclusiveMinimum"] = number(*info.exclusive_minimum);
  if (info.maximum) schema["maximum"] = number(*info.maximum);
  if (info.exclusive_maximum) schema["exclusiveMaximum"] = number(*info.exclusive_maximum);
}

}  // namespace mpt
