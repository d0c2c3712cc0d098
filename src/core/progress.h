// Progress of a long operation: on a terminal one line that renews itself, with a bar and the
// remaining time, as wide as the terminal at most; in a log an occasional plain line.
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

std::string format_duration(double seconds);  // "42s", "3m05s", "2h07m"
std::string format_count(double count);       // "950", "1.5k", "12.3M", "4.00G"
std::string format_bytes(double bytes);       // "512 B", "1.5 MiB"

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

  // Removes the bar that was drawn last, if one is on the terminal; for whoever writes there.
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

// What a line of progress shows.
struct ProgressLine {
  std::string_view label;
  double share;  // done of the total, from 0 to 1
  double left_s;
  std::string_view note{};
};
// "nano [=====>    ]  52.0% | 3m05s left | loss 3.21", at most `columns` wide: the bar gets what
// texts leave, up to 40 columns, and goes where that is too little; then the end is cut.
std::string progress_line(const ProgressLine& line, int64_t columns);

// Columns of the terminal on standard error, asked anew as a window changes its size; more than any
// line has where it is no terminal.
int64_t terminal_columns();

// A column of a log line; those of the highest rank go first where there is no room.
struct Column {
  std::string text;
  int64_t rank;
};
// "a | b | c" of the columns for which `width` has room, one at least.
std::string columns_that_fit(std::vector<Column> columns, int64_t width);

// Memory use of this process.

// Resident bytes, shared libraries included (/proc/self/statm, proc(5)); 0 if the system does not
// report them.
int64_t resident_bytes();

}  // namespace mpt
