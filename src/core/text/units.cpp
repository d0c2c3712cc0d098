#include "core/text/units.h"

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace mpt {

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string format_count(double count) {
  // Switches to the next unit if rounding to the digits shown would give 1000.
  if (count < 999.5) return fmt::format("{:.0f}", count);
  if (count < 999.95e3) return fmt::format("{:.1f}k", count / 1e3);
  if (count < 999.95e6) return fmt::format("{:.1f}M", count / 1e6);
  return fmt::format("{:.2f}G", count / 1e9);
}

std::string format_bytes(double bytes) {
  constexpr double kMost = 1023.95;  // shown as 1023.9
  if (bytes < 1023.5) return fmt::format("{:.0f} B", bytes);
  if (bytes < kMost * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  if (bytes < kMost * 1024 * 1024) return fmt::format("{:.1f} MiB", bytes / (1024.0 * 1024));
  return fmt::format("{:.2f} GiB", bytes / (1024.0 * 1024 * 1024));
}

}  // namespace mpt
