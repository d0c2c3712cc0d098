// Progress of a long operation: on a terminal a bar with rate and remaining time, in a log an
// occasional plain line.
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

namespace mpt {

std::string format_duration(double seconds);  // "42s", "3m05s", "2h07m"
std::string format_count(double count);       // "950", "1.5k", "12.3M", "4.00G"
std::string format_bytes(double bytes);       // "512 B", "1.5 MiB"

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

// Memory use of this process.

// Resident bytes, shared libraries included (/proc/self/statm, proc(5)); 0 if the system does not
// report them.
int64_t resident_bytes();

}  // namespace mpt
