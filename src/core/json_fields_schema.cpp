#include "core/json_fields_schema.h"

#include <cmath>

#include <fmt/format.h>

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
  return fmt::format("{} with {} = {}. {}", need.empty() ? "Only" : need, condition.key, condition.accepted,
                     info.doc);
}

void FieldSchema::add_bounds(Json& schema, const FieldInfo& info) {
  if (info.minimum) schema["minimum"] = number(*info.minimum);
  if (info.exclusive_minimum) schema["exclusiveMinimum"] = number(*info.exclusive_minimum);
  if (info.maximum) schema["maximum"] = number(*info.maximum);
  if (info.exclusive_maximum) schema["exclusiveMaximum"] = number(*info.exclusive_maximum);
}

}  // namespace mpt
