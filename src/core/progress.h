// Progress of a long operation: on a terminal, one line that is redrawn, with a bar and the
// remaining time, at most as wide as the terminal; in a log, an occasional plain line.
//
//   Progress progress({.label = "tokenize", .total = bytes});
//   progress.update(done, fmt::format("{} tokens/s", rate));
//   progress.finish();
//
// Writes to standard error. Thread-safe. Never throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

double seconds_since(std::chrono::steady_clock::time_point start);

class Progress {
 public:
  struct Options {
    std::string label;
    int64_t total = 0;             // final value of `done`; 0 = unknown
    double log_interval_s = 10.0;  // between plain lines when standard error is not a terminal
    double bar_interval_s = 0.1;   // between redraws on a terminal
  };
  explicit Progress(Options options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` counts from 0 to total; `note` is shown after the bar.
  void update(int64_t done, const std::string& note = "");
  // Removes the bar from the terminal so that a log line can be printed; the next update redraws
  // it.
  void clear();
  // Draws the final state and ends the line. The destructor calls it if needed.
  void finish(const std::string& note = "");

  // Removes the last bar drawn, if it is still on the terminal; for anything else that writes
  // there.
  static void clear_drawn();

  static bool on_terminal();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t done, const std::string& note);

  Options options_;
  std::mutex mutex_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_shown_{};
  int64_t last_done_ = 0;
  bool bar_drawn_ = false;
  bool finished_ = false;
};

// Contents of a progress line.
struct ProgressLine {
  std::string_view label;
  double share;  // fraction done, from 0 to 1
  double left_s;
  std::string_view note{};
};
// "nano [=====>    ]  52.0% | 3m05s left | loss 3.21", at most `columns` wide: the bar gets what
// the texts leave, up to 40 columns, and is dropped if that is too little; then the end is cut.
std::string progress_line(const ProgressLine& line, int64_t columns);

// Columns of the terminal on standard error, queried on every call because windows are resized; if
// it is no terminal, more than any line has.
int64_t terminal_columns();

// Column of a log line; the highest ranks are dropped first if there is no room.
struct Column {
  std::string text;
  int64_t rank;
};
// "a | b | c": the columns that fit in `width`, at least one.
std::string columns_that_fit(std::vector<Column> columns, int64_t width);

}  // namespace mpt
