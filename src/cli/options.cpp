#include "cli/options.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace mpt {
namespace {

CLI::ValidationError refusal(const std::string& name, const std::string& text,
                             const std::string& accepted) {
  return CLI::ValidationError(name, fmt::format("'{}' is not {}", text, accepted));
}

// Parses the whole text as a number.
template <class T>
std::optional<T> whole_number(const std::string& text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t count_in(const std::string& name, const std::string& text, const CountRange& range) {
  const std::optional<int64_t> value = whole_number<int64_t>(text);
  if (value && *value >= range.least && *value <= range.most) return *value;
  throw refusal(name, text,
                range.most == kMostCount
                    ? fmt::format("a whole number of at least {}", range.least)
                    : fmt::format("a whole number from {} to {}", range.least, range.most));
}

double real_in(const std::string& name, const std::string& text, const RealRange& range) {
  const std::optional<double> value = whole_number<double>(text);
  if (value && *value >= range.least && *value <= range.most) return *value;
  throw refusal(name, text,
                range.most == std::numeric_limits<double>::max()
                    ? fmt::format("a finite number of at least {}", range.least)
                    : fmt::format("a number from {} to {}", range.least, range.most));
}

std::string filled(const std::string& name, const std::string& text) {
  if (text.empty()) throw CLI::ValidationError(name, "must not be empty");
  return text;
}

}  // namespace

CLI::Option* add_count(CLI::App& verb, const std::string& name, int64_t& target,
                       const CountRange& range, const std::string& help) {
  const auto set = [&target, name, range](const std::string& text) {
    target = count_in(name, text, range);
  };
  return verb.add_option_function<std::string>(name, set, help)
      ->type_name("N")
      ->default_str(std::to_string(target));
}

CLI::Option* add_count(CLI::App& verb, const std::string& name, std::optional<int64_t>& target,
                       const CountRange& range, const std::string& help) {
  const auto set = [&target, name, range](const std::string& text) {
    target = count_in(name, text, range);
  };
  return verb.add_option_function<std::string>(name, set, help)->type_name("N");
}

BosOptions add_bos(CLI::App& verb, std::optional<bool>& target, const std::string& help) {
  CLI::Option* with = verb.add_flag_callback(
      "--bos", [&target] { target = true; }, help + " [as in the model's data]");
  CLI::Option* without = verb.add_flag_callback(
      "--no-bos", [&target] { target = false; }, "no BOS [as in the model's data]");
  return {with, without->excludes(with)};
}

CLI::Option* add_seed(CLI::App& verb, uint64_t& target, const std::string& help) {
  const auto set = [&target](const std::string& text) {
    const std::optional<uint64_t> value = whole_number<uint64_t>(text);
    if (!value) throw refusal("--seed", text, "a whole number from 0 to 18446744073709551615");
    target = *value;
  };
  return verb.add_option_function<std::string>("--seed", set, help)
      ->type_name("N")
      ->default_str(std::to_string(target));
}

CLI::Option* add_threads(CLI::App& verb, int& target) {
  const auto set = [&target](const std::string& text) {
    target = static_cast<int>(count_in("--threads", text, {.least = 0, .most = 4096}));
  };
  return verb.add_option_function<std::string>("--threads", set, "CPU threads; 0 = all")
      ->type_name("N")
      ->default_str(std::to_string(target));
}

CLI::Option* add_real(CLI::App& verb, const std::string& name, double& target,
                      const RealRange& range, const std::string& help) {
  const auto set = [&target, name, range](const std::string& text) {
    target = real_in(name, text, range);
  };
  return verb.add_option_function<std::string>(name, set, help)
      ->type_name("X")
      ->default_str(fmt::format("{}", target));
}

CLI::Option* add_text(CLI::App& verb, const std::string& name, std::string& target,
                      const std::string& help) {
  const auto set = [&target, name](const std::string& text) { target = filled(name, text); };
  CLI::Option* option = verb.add_option_function<std::string>(name, set, help)->type_name("TEXT");
  return target.empty() ? option : option->default_str(target);
}

CLI::Option* add_text(CLI::App& verb, const std::string& name, std::optional<std::string>& target,
                      const std::string& help) {
  const auto set = [&target, name](const std::string& text) { target = filled(name, text); };
  return verb.add_option_function<std::string>(name, set, help)->type_name("TEXT");
}

CLI::Option* add_texts(CLI::App& verb, const std::string& name, std::vector<std::string>& target,
                       const std::string& help) {
  const auto set = [&target, name](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) target.push_back(filled(name, text));
  };
  return verb.add_option_function<std::vector<std::string>>(name, set, help)->type_name("TEXT");
}

void add_checkpoint(CLI::App& verb, std::string& target) {
  add_text(verb, "--checkpoint", target,
           "checkpoint directory, or run directory for its newest good checkpoint")
      ->required();
}

void add_device(CLI::App& verb, DeviceConfig& target) {
  add_choice(verb, "--device", target.type, "where the model runs: " + all_names<DeviceType>());
  add_count(verb, "--threads", target.threads, {.least = 0, .most = 4096},
            "CPU threads; 0 = OMP_NUM_THREADS if set, else all");
}

}  // namespace mpt
