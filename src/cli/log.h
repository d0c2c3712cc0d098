// Where log lines go: standard error, with the time, warnings and errors marked as such.
#pragma once

#include <array>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
template <>
struct EnumNames<LogLevel> {
  static constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};
};

void log_to_standard_error();
void set_log_level(LogLevel level);

}  // namespace mpt
