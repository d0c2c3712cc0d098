// Options of verbs, checked when parsed: a value out of range, a number with trailing text, NaN or
// an empty name is a usage error that names the option.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "config/run_config.h"
#include "core/enum_names.h"

namespace mpt {

inline constexpr int64_t kMostCount = int64_t{1} << 50;

struct CountRange {
  int64_t least = 0;
  int64_t most = kMostCount;
};

// Both ends are included.
struct RealRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};

// The initial value of `target` is the default that --help shows.
CLI::Option* add_count(CLI::App& verb, const std::string& name, int64_t& target,
                       const CountRange& range, const std::string& help);
CLI::Option* add_count(CLI::App& verb, const std::string& name, std::optional<int64_t>& target,
                       const CountRange& range, const std::string& help);
CLI::Option* add_seed(CLI::App& verb, uint64_t& target, const std::string& help);
CLI::Option* add_threads(CLI::App& verb, int& target);
CLI::Option* add_real(CLI::App& verb, const std::string& name, double& target,
                      const RealRange& range, const std::string& help);
CLI::Option* add_text(CLI::App& verb, const std::string& name, std::string& target,
                      const std::string& help);
CLI::Option* add_text(CLI::App& verb, const std::string& name, std::optional<std::string>& target,
                      const std::string& help);
// May be given several times and take several values at once, as with an expanded glob.
CLI::Option* add_texts(CLI::App& verb, const std::string& name, std::vector<std::string>& target,
                       const std::string& help);

// --bos (`help`) and --no-bos, which exclude each other. None: as in the model's data.
struct BosOptions {
  CLI::Option *with, *without;
};
BosOptions add_bos(CLI::App& verb, std::optional<bool>& target, const std::string& help);

// --checkpoint, required: a saved model.
void add_checkpoint(CLI::App& verb, std::string& target);
// --device and --threads: where a saved model runs.
void add_device(CLI::App& verb, DeviceConfig& target);

template <NamedEnum E>
E choice_of(const std::string& option, const std::string& text) {
  const std::optional<E> value = enum_from_name<E>(text);
  if (!value) throw CLI::ValidationError(option, "'" + text + "' is not one of: " + all_names<E>());
  return *value;
}

template <NamedEnum E>
CLI::Option* add_choice(CLI::App& verb, const std::string& name, E& target,
                        const std::string& help) {
  const auto set = [&target, name](const std::string& text) { target = choice_of<E>(name, text); };
  return verb.add_option_function<std::string>(name, set, help)
      ->type_name("NAME")
      ->default_str(std::string(name_of(target)));
}

template <NamedEnum E>
CLI::Option* add_choice(CLI::App& verb, const std::string& name, std::optional<E>& target,
                        const std::string& help) {
  const auto set = [&target, name](const std::string& text) { target = choice_of<E>(name, text); };
  return verb.add_option_function<std::string>(name, set, help)->type_name("NAME");
}

// May be given several times and take several values at once.
template <NamedEnum E>
CLI::Option* add_choices(CLI::App& verb, const std::string& name, std::vector<E>& target,
                         const std::string& help) {
  const auto set = [&target, name](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) target.push_back(choice_of<E>(name, text));
  };
  return verb
      .add_option_function<std::vector<std::string>>(name, set, help + ": " + all_names<E>())
      ->type_name("NAME");
}

}  // namespace mpt
