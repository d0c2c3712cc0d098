// Two kinds of failure: a user's mistake throws Error; a broken invariant throws LogicError with
// both values.
//
// Error messages name the culprit (file, key, line or shape), what was found and what would be
// accepted. main() prints either kind on standard error and exits with a nonzero code. Elsewhere,
// Error is caught only where execution can continue.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace mpt {

// User input is wrong: a config, a file, an argument, the environment.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An invariant of the program is broken: a bug, never the user's fault.
class LogicError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// throw error("{}: expected magic {}, found {}", path, want, got);
template <class... Args>
[[nodiscard]] Error error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(fmt::format(format, std::forward<Args>(args)...));
}

// Checked in every build. Takes only a bool, so that check("text") does not compile.
template <std::same_as<bool> Condition, class... Args>
void check(Condition holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw LogicError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mpt
