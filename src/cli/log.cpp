#include "cli/log.h"

#include <memory>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace mpt {
namespace {

// "warning: " before what is not plain information.
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

}  // namespace

void log_to_standard_error() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelMark>('*').set_pattern("[%H:%M:%S] %^%*%$%v");
  auto logger =
      std::make_shared<spdlog::logger>("mpretrain", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(std::move(logger));
}

void set_log_level(LogLevel level) {
  constexpr std::array kLevels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                               spdlog::level::err};
  spdlog::set_level(kLevels[static_cast<size_t>(level)]);
}

}  // namespace mpt
