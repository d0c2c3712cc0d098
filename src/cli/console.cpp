#include "cli/console.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>

#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "core/check.h"
#include "core/progress.h"
#include "core/text/shown_text.h"

namespace mpt {
namespace {

// Prefixes levels other than info, for example with "warning: ".
class LevelMark final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& target) override {
    std::string_view mark;
    if (message.level == spdlog::level::warn) mark = "warning: ";
    if (message.level >= spdlog::level::err) mark = "error: ";
    target.append(mark.data(), mark.data() + mark.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<LevelMark>();
  }
};

// A log line replaces a progress bar, which is redrawn below it.
class StandardError final
    : public spdlog::sinks::ansicolor_stderr_sink<spdlog::details::console_mutex> {
 public:
  using ansicolor_stderr_sink::ansicolor_stderr_sink;
  void log(const spdlog::details::log_msg& message) override {
    const std::string text = shown_message({message.payload.data(), message.payload.size()});
    spdlog::details::log_msg shown = message;
    shown.payload = text;
    Progress::clear_drawn();
    ansicolor_stderr_sink::log(shown);
  }
};

// Only on terminals, and not if NO_COLOR is set to anything (https://no-color.org).
spdlog::color_mode colors() {
  const char* refused = std::getenv("NO_COLOR");
  return refused != nullptr && *refused != '\0' ? spdlog::color_mode::never
                                                : spdlog::color_mode::automatic;
}

}  // namespace

std::string shown_message(std::string_view message) {
  constexpr size_t kMost = size_t{16} << 10;
  return shortened(without_controls(message), kMost);
}

void log_to_standard_error() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelMark>('*').set_pattern("[%H:%M:%S] %^%*%$%v");
  auto logger =
      std::make_shared<spdlog::logger>("mpretrain", std::make_shared<StandardError>(colors()));
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(std::move(logger));
}

void set_log_level(LogLevel level) {
  constexpr std::array kLevels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                               spdlog::level::err};
  spdlog::set_level(kLevels[static_cast<size_t>(level)]);
}

namespace {

bool reader_has_gone() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace

bool write_output(std::string_view text) {
  std::cout.flush();
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EPIPE) return false;
    if (written < 0 && errno != EINTR)
      throw error("standard output cannot be written: {}", std::strerror(errno));
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void finish_output() {
  std::cout.flush();
  if (!std::cout && !reader_has_gone()) throw error("standard output cannot be written");
}

}  // namespace mpt
