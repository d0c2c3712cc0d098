#include "core/progress.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/io/standard_error.h"
#include "core/text/units.h"
#include "core/text/utf8.h"

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

// Cuts between characters; a character counts as one column per byte.
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
  // Leaves the last column free: some terminals wrap after writing to it.
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

}  // namespace mpt
