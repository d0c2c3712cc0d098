// List of types from which enumerations, variants and instantiations are derived.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <variant>

namespace mpt {

template <class... T>
struct TypeList {
  static constexpr size_t kSize = sizeof...(T);

  template <size_t i>
  using At = std::tuple_element_t<i, std::tuple<T...>>;
  using Variant = std::variant<T...>;
  // Index of U, which must occur exactly once.
  template <class U>
  requires((std::is_same_v<T, U> + ...) == 1) static constexpr size_t kIndex = [] {
    size_t before = 0;
    (void)((std::is_same_v<T, U> || (++before, false)) || ...);
    return before;
  }();

  // Calls f(std::type_identity<T>{}) for every type, in order.
  template <class F>
  static constexpr void each(const F& f) {
    (f(std::type_identity<T>{}), ...);
  }
  // Calls f for the type at `index` only; returns whether that exists.
  template <class F>
  static constexpr bool with(size_t index, const F& f) {
    size_t i = 0;
    return ((i++ == index && (f(std::type_identity<T>{}), true)) || ...);
  }
};

}  // namespace mpt
