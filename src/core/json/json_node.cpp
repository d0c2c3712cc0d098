#include "core/json/json_node.h"

#include <algorithm>
#include <cmath>

#include "core/json/json_parse.h"
#include "core/text/shown_text.h"

namespace mpt {
namespace {

const nlohmann::json kNull;
constexpr size_t kMostShown = 60;  // limit on a path

std::string shown_value(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  const std::string text = short_json_text(value);
  return value.is_string() ? "the text " + text : text;
}

}  // namespace

void JsonNode::refuse(std::string_view expected) const {
  throw error("{}: found {}; {}", path_, shown_value(*value_), expected);
}

JsonNode JsonNode::operator[](const std::string& key) const {
  if (!value_->is_object()) refuse("expected an object");
  const auto found = value_->find(key);
  std::string path = join_key_path(path_, key);
  if (std::ssize(path) > kMaxJsonPathBytes)
    throw error("{}: a key and those around it have {} bytes; at most {} are accepted",
                shortened(path, kMostShown), path.size(), kMaxJsonPathBytes);
  return {found == value_->end() ? kNull : *found, std::move(path)};
}

JsonList JsonNode::list() const {
  if (!value_->is_array()) refuse("expected a list");
  return {*value_, path_};
}

const std::string& JsonNode::text() const {
  if (!value_->is_string()) refuse("expected a text");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::flag() const {
  if (!value_->is_boolean()) refuse("expected true or false");
  return value_->get<bool>();
}

int64_t JsonNode::count() const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() > INT32_MAX)
    refuse("expected a whole number, 0 or more");
  return value_->get<int64_t>();
}

double JsonNode::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) refuse("expected a number");
  return value_->get<double>();
}

void JsonNode::require_keys(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) refuse("expected an object");
  for (const auto& [key, unused] : value_->items())
    if (key != "type" && std::ranges::find(keys, key) == keys.end())
      throw error("{}: the key is not read here; expected {}", join_key_path(path_, key),
                  keys.size() == 0 ? "none" : fmt::format("{}", fmt::join(keys, ", ")));
}

void JsonNode::require_null(std::string_view why) const {
  if (!is_null()) refuse(fmt::format("expected null: {}", why));
}

}  // namespace mpt
