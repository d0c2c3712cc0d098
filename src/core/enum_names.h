// One table per enum defines its spelling in configs, messages, checkpoints and the schema.
//
//   template <>
//   struct mpt::EnumNames<Shape> { static constexpr std::array kNames{"cosine", "linear"}; };
//
// Names are listed in enumerator order; enumerators must count from 0.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace mpt {

template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::kNames.size();
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  return EnumNames<E>::kNames[static_cast<size_t>(value)];
}

template <NamedEnum E>
constexpr std::optional<E> enum_from_name(std::string_view name) {
  for (size_t i = 0; i < EnumNames<E>::kNames.size(); ++i)
    if (EnumNames<E>::kNames[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

// "nearest, stochastic, kahan": the accepted values, for error messages.
template <NamedEnum E>
std::string all_names() {
  std::string list;
  for (std::string_view name : EnumNames<E>::kNames) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

}  // namespace mpt
