#include "core/progress.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

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
  // Switch to the next unit where rounding to the digits shown would give 1000.
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

bool Progress::on_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  return terminal;
}

Progress::Progress(Options options) : options_(std::move(options)) {}
Progress::~Progress() { finish(); }

void Progress::update(int64_t done, const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  last_done_ = done;
  const auto now = Clock::now();
  const double interval = on_terminal() ? options_.bar_interval_s : options_.log_interval_s;
  const auto since = last_shown_ == Clock::time_point{} ? now - start_ : now - last_shown_;
  if (std::chrono::duration<double>(since).count() < interval) return;
  last_shown_ = now;
  draw(done, note);
}

void Progress::draw(int64_t done, const std::string& note) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line = options_.label;
  if (options_.total > 0) {
    const double share = std::clamp(double(done) / double(options_.total), 0.0, 1.0);
    const double left = share > 0 ? elapsed * (1 - share) / share : -1;
    if (on_terminal()) {
      constexpr int kWidth = 24;
      const int filled = static_cast<int>(share * kWidth);
      line +=
          fmt::format(" [{:=<{}}{:<{}}]", "", filled, filled < kWidth ? ">" : "", kWidth - filled);
    }
    line += fmt::format(" {:5.1f}% | {} left", 100 * share, format_duration(left));
  } else {
    line += fmt::format(" {} | {} elapsed", format_count(double(done)), format_duration(elapsed));
  }
  if (!note.empty()) line += " | " + note;
  if (on_terminal()) {
    fmt::print(stderr, "\r\033[K{}", line);
    bar_drawn_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (!bar_drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  bar_drawn_ = false;
}

void Progress::finish(const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (!note.empty() || bar_drawn_) draw(last_done_, note);
  if (bar_drawn_) fmt::print(stderr, "\n");
  std::fflush(stderr);
}

int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return pages >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace mpt
