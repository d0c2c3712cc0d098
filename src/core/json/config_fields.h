// How a config struct declares its keys: once, in a member template that accepts every visitor.
//
//   struct BatchConfig {
//     int64_t seq_len = 1024;
//     template <class V> void fields(V& v) {
//       v.optional("seq_len", seq_len, {.minimum = 1, .doc = "tokens in one sequence"});
//     }
//   };
//
// The reader, the writer, the schema and the list of known keys (config_reader.h, config_writer.h)
// are derived from it. Visitors offer required(), optional() (the member's value is the default),
// section() (a nested struct) and choice() (a std::variant of structs, each with a kName: the key's
// value names one of them, and its keys then belong to the same section). Other members are bool,
// int64_t, uint64_t, double, std::string, std::vector<std::string>, enums with EnumNames, or
// std::optional of one of these.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "core/enum_names.h"

namespace mpt {

// Restricts a field to some values of an enum declared before it in the same struct. For other
// values the key must be absent, as it would be ignored.
struct Condition {
  std::string_view key;     // "rule"; empty: always holds
  std::string accepted{};   // "m_plus_adam"
  std::string_view actual;  // "adamw"
  bool holds = true;
};

// Accepted values and documentation of a field; bounds apply to numbers.
struct FieldInfo {
  std::optional<double> minimum{};
  std::optional<double> exclusive_minimum{};
  std::optional<double> maximum{};
  std::optional<double> exclusive_maximum{};
  Condition only_with{};
  std::string_view doc{};
  std::string_view former{};  // an earlier name of the key, still accepted (use_present_names)
};

// Largest value of a key that is used in binary32 arithmetic: the value and products with it stay
// finite.
inline constexpr double kMaxReal = 1e30;
// Smallest positive value: a normal binary32 number, so that "greater than 0" survives rounding.
inline constexpr double kMinPositiveReal = 1e-37;
// Largest factor below 1 that stays below 1 in binary32.
inline constexpr double kMaxBelowOne = 0.9999999;

template <NamedEnum E>
Condition only_with(std::string_view key, E actual, std::initializer_list<E> accepted) {
  Condition condition{.key = key, .actual = name_of(actual), .holds = false};
  for (E value : accepted) {
    condition.holds |= value == actual;
    if (!condition.accepted.empty()) condition.accepted += " or ";
    condition.accepted += name_of(value);
  }
  return condition;
}

namespace fields_detail {
struct AnyVisitor {
  template <class T>
  void required(const char*, T&, const FieldInfo& = {}) {}
  template <class T>
  void optional(const char*, T&, const FieldInfo& = {}) {}
  template <class S>
  void section(const char*, S&, std::string_view) {}
  template <class... A>
  void choice(const char*, std::variant<A...>&, const FieldInfo& = {}) {}
};
}  // namespace fields_detail

template <class S>
concept HasFields = requires(S& s, fields_detail::AnyVisitor& v) {
  s.fields(v);
};

}  // namespace mpt
