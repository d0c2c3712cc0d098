// Standard error, where log lines go, and standard output, where the results of verbs go.
#pragma once

#include <array>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// Where log lines go: standard error, with the time, warnings and errors marked as such.

enum class LogLevel { kDebug, kInfo, kWarning, kError };
template <>
struct EnumNames<LogLevel> {
  static constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};
};

void log_to_standard_error();
void set_log_level(LogLevel level);

// Standard output: where the results of verbs go.

// At once. False if the reader has gone (`| head`), which is no failure: there is nobody to write for. Throws
// Error if the text cannot be written for another reason, such as a full disk.
bool write_output(std::string_view text);

// To be called at the end, for what was printed through std::cout.
void finish_output();

}  // namespace mpt
