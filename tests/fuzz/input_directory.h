// Shared by the fuzz targets: where they write their input, and which of a reader's exceptions are
// valid answers.
//
// A target feeds untrusted bytes to one reader. The reader accepts them or throws Error; anything
// else, such as std::bad_alloc or LogicError, escapes the target and is a finding. So is a reader
// that takes long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "support/temp_directory.h"

namespace mpt::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Removes and returns the part of `text` before the next line "---", for inputs of several files.
inline std::string_view next_part(std::string_view& text) {
  constexpr std::string_view kDivider = "\n---\n";
  const size_t end = std::min(text.find(kDivider), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + kDivider.size(), text.size()));
  return part;
}

// Returns a directory in memory, the same for all inputs of a process.
inline const test::TempDirectory& input_directory() {
  static const test::TempDirectory directory(test::memory_directory());
  return directory;
}

// Returns the path.
inline std::string write_input(const std::string& name, std::string_view content) {
  const std::string path = input_directory() / name;
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  check(file.good(), "{}: the input could not be written", path);
  return path;
}

// Returns the message of the last Error, for tests.
inline std::string& last_refusal() {
  static std::string message;
  return message;
}

// Runs `read` and accepts an Error as an answer. Logs of readers are not shown. Time is processor
// time, so that a busy machine causes no findings.
template <class F>
void accept_or_refuse(F&& read) {
  constexpr double kMostSeconds = 2;
  const std::clock_t start = std::clock();
  spdlog::set_level(spdlog::level::off);
  try {
    read();
  } catch (const Error& refusal) {
    last_refusal() = refusal.what();
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  check(seconds < kMostSeconds, "the reader took {} s", seconds);
}

}  // namespace mpt::fuzz
