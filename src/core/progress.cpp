#include "core/progress.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/io/standard_error.h"
#include "core/text.h"

namespace mpt {
namespace {

// The terminal has one last line, so at most one bar is drawn on it.
std::mutex drawn_mutex;
bool bar_is_drawn = false;

std::string bar_of(double share, int64_t width) {
  const auto filled = int64_t(share * double(width));
  return fmt::format(" [{:=<{}}{:<{}}]", "", filled, filled < width ? ">" : "", width - filled);
}

std::string behind_bar(const ProgressLine& line) {
  return fmt::format(" {:5.1f}% | {} left{}{}", 100 * line.share, format_duration(line.left_s),
                     line.note.empty() ? "" : " | ", line.note);
}

std::string plain_line(const ProgressLine& line) {
  return std::string(line.label) + behind_bar(line);
}

// Cut between characters; each counts as a column for every byte it has.
std::string first_columns(const std::string& text, int64_t columns) {
  if (int64_t(text.size()) <= columns) return text;
  const auto kept = size_t(std::max<int64_t>(columns, 0));
  return text.substr(0, valid_utf8_prefix(std::string_view(text).substr(0, kept)));
}

}  // namespace

int64_t terminal_columns() {
  constexpr int64_t kUsual = 80;
  winsize size{};
  if (!Progress::on_terminal()) return std::numeric_limits<int64_t>::max();
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

std::string columns_that_fit(std::vector<Column> columns, int64_t width) {
  const auto joined = [&columns] {
    std::string text;
    for (const Column& column : columns) text += (text.empty() ? "" : " | ") + column.text;
    return text;
  };
  std::string text = joined();
  while (int64_t(text.size()) > width && columns.size() > 1) {
    columns.erase(std::ranges::max_element(columns, {}, &Column::rank));
    text = joined();
  }
  return text;
}

std::string progress_line(const ProgressLine& line, int64_t columns) {
  constexpr int64_t kMostBar = 40, kLeastBar = 8, kFrame = 3;  // " [" and "]"
  const std::string behind = behind_bar(line);
  const int64_t room = columns - kFrame - int64_t(line.label.size() + behind.size());
  const int64_t bar = std::min(room, kMostBar);
  const std::string text =
      std::string(line.label) + (bar >= kLeastBar ? bar_of(line.share, bar) : "") + behind;
  return first_columns(text, columns);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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
  // The last column stays free: some terminals begin a new line with it.
  const int64_t columns = terminal_columns() - 1;
  std::string line;
  if (options_.total > 0) {
    const double share = std::clamp(double(done) / double(options_.total), 0.0, 1.0);
    const double left = share > 0 ? elapsed * (1 - share) / share : -1;
    line = on_terminal() ? progress_line({options_.label, share, left, note}, columns)
                         : plain_line({options_.label, share, left, note});
  } else {
    line = fmt::format("{} {} | {} elapsed{}{}", options_.label, format_count(double(done)),
                       format_duration(elapsed), note.empty() ? "" : " | ", note);
    line = first_columns(line, columns);
  }
  if (!on_terminal()) {
    write_to_standard_error(line + "\n");
  } else {
    const std::lock_guard lock(drawn_mutex);
    write_to_standard_error("\r\033[K" + line);
    bar_is_drawn = bar_drawn_ = true;
  }
}

void Progress::clear_drawn() {
  const std::lock_guard lock(drawn_mutex);
  if (!bar_is_drawn) return;
  write_to_standard_error("\r\033[K");
  bar_is_drawn = false;
}

void Progress::clear() { clear_drawn(); }

void Progress::finish(const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (!note.empty() || bar_drawn_) draw(last_done_, note);
  if (!bar_drawn_) return;
  const std::lock_guard drawn(drawn_mutex);
  write_to_standard_error("\n");
  bar_is_drawn = false;
}

int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return pages >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace mpt
