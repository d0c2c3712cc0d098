// How a config struct declares its keys: once, in a member template that every visitor walks.
//
//   struct BatchConfig {
//     int64_t seq_len = 1024;
//     template <class V> void fields(V& v) {
//       v.optional("seq_len", seq_len, {.minimum = 1, .doc = "tokens in one sequence"});
//     }
//   };
//
// The reader, the writer, the schema and the list of known keys (config_reader.h, config_writer.h)
// follow from it. Visitors offer required(), optional() (the member's value is the default), section() (a
// nested struct) and choice() (a std::variant of structs with a kName each: the key's value names one of
// them, whose own keys then stand in the same section). Other members are bool, int64_t, uint64_t, double,
// std::string, std::vector<std::string>, enums with EnumNames, or std::optional of one of these.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "core/enum_names.h"

namespace mpt {

// Says that a field means something only for some values of an enum declared before it in the same struct.
// Where it does not hold, the key must be absent: nothing a user wrote is ignored.
struct Condition {
  std::string_view key;     // "rule"; empty: always holds
  std::string accepted{};   // "m_plus_adam"
  std::string_view actual;  // "adamw"
  bool holds = true;
};

// What is accepted and what it means; bounds apply to numbers.
struct FieldInfo {
  std::optional<double> minimum{};
  std::optional<double> exclusive_minimum{};
  std::optional<double> maximum{};
  std::optional<double> exclusive_maximum{};
  Condition only_with{};
  std::string_view doc{};
  std::string_view former{};  // a name that the key had before, which is still read (use_present_names)
};

// Largest value of a key that arithmetic uses as a binary32 number: it, and products with it, stay finite.
inline constexpr double kMaxReal = 1e30;
// Smallest positive one: a normal binary32 number, so that "greater than 0" survives the rounding.
inline constexpr double kMinPositiveReal = 1e-37;
// Largest factor below 1 that is below 1 in binary32 too.
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
