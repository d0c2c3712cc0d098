// Standard error, for log lines, and standard output, for results of verbs.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// Log lines: standard error, with the time; warnings and errors are marked.

enum class LogLevel { kDebug, kInfo, kWarning, kError };
template <>
struct EnumNames<LogLevel> {
  static constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};
};

// Returns a message as shown on standard error: text quoted from a file can be long, and contain
// terminal control sequences. Log lines are shown so.
std::string shown_message(std::string_view message);

void log_to_standard_error();
void set_log_level(LogLevel level);

// Results of verbs: standard output.

// Writes at once. Returns false if the reader has closed the pipe (`| head`), which is not an
// error. Throws Error if writing fails otherwise, for example on a full disk.
bool write_output(std::string_view text);

// Flushes std::cout; call at the end. Throws Error if writing failed, unless the reader has closed
// the pipe.
void finish_output();

}  // namespace mpt
