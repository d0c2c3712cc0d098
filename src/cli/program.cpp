#include "cli/program.h"

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "config/usual_spellings.h"
#include "core/check.h"
#include "core/io/standard_error.h"
#include "core/text/library_message.h"
#include "core/text/suggestion.h"
#include "ranks/relayed_error.h"

namespace mpt {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kBug = 3;
constexpr const char* kLogLevel = "--log-level";

int report(int status, const std::string& message) {
  write_to_standard_error(fmt::format("mpretrain: error: {}\n", shown_message(message)));
  return status;
}

std::vector<std::string> verbs_of(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* verb : program.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  return names;
}

bool is_for_the_program(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == "--version";
}

CLI::ExtrasError unknown_verb(const std::string& found, const std::vector<std::string>& verbs) {
  const auto nearest = nearest_name(found, verbs);
  return {fmt::format("unknown verb '{}'{}; the verbs are {}", found,
                      nearest ? fmt::format(" (did you mean '{}'?)", *nearest) : "",
                      fmt::join(verbs, ", ")),
          CLI::ExitCodes::ExtrasError};
}

// `next`: the word after a verb that has subverbs.
void check_inner_verb(const std::string& next, const std::vector<std::string>& verbs) {
  if (next.empty()) throw CLI::RequiredError(fmt::format("A verb ({})", fmt::join(verbs, ", ")));
  if (next.starts_with("-") || std::find(verbs.begin(), verbs.end(), next) != verbs.end()) return;
  throw unknown_verb(next, verbs);
}

// "help" stands for "--help", "help VERB" for "VERB --help".
void complete_help(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "help") return;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
}

// "--config F ..." stands for "train --config F ...". The first word must be a verb or an option.
void complete_verb(const CLI::App& program, std::vector<std::string>& arguments) {
  const std::vector<std::string> verbs = verbs_of(program);
  const std::string begin = arguments.empty() ? "" : arguments.front();
  const size_t at = begin == kLogLevel                                ? 2
                    : begin.starts_with(std::string(kLogLevel) + "=") ? 1
                                                                      : 0;
  if (arguments.size() <= at)
    throw CLI::RequiredError(fmt::format("A verb ({})", fmt::join(verbs, ", ")));
  const std::string first = arguments[at];
  if (is_for_the_program(first)) return;
  if (std::find(verbs.begin(), verbs.end(), first) != verbs.end()) {
    const std::vector<std::string> inner = verbs_of(*program.get_subcommand(first));
    if (!inner.empty()) check_inner_verb(arguments.size() > at + 1 ? arguments[at + 1] : "", inner);
    return;
  }
  if (!first.starts_with("-")) throw unknown_verb(first, verbs);
  arguments.insert(arguments.begin() + std::ptrdiff_t(at), "train");
}

// The last verb parsed, such as `list` of `checkpoint list`; the program if none.
const CLI::App& innermost_verb(const CLI::App& program) {
  const CLI::App* verb = &program;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  return *verb;
}

std::vector<std::string> option_names(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* app : {&innermost_verb(program), &program})
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// A suggestion for an unknown option; empty if nothing is close.
std::string option_hint(const std::string& option, const std::vector<std::string>& known) {
  if (const auto nearest = nearest_name(option, known))
    return fmt::format(" (did you mean '{}'?)", *nearest);
  const bool has_config = std::ranges::find(known, "--set") != known.end();
  const auto key =
      has_config ? config_key_meant_by(option.substr(option.find_first_not_of('-'))) : std::nullopt;
  return key ? fmt::format(" (did you mean '--set {}=...'?)", *key) : "";
}

// Exceptions of the verb itself pass through.
int parse_and_run(CLI::App& program, std::vector<std::string> arguments) {
  try {
    complete_help(arguments);
    complete_verb(program, arguments);
    std::reverse(arguments.begin(), arguments.end());  // the order CLI11 expects
    program.parse(std::move(arguments));
  } catch (const CLI::Success& done) {  // --help, --version
    program.exit(done);
  } catch (const CLI::RuntimeError& ended) {  // a verb with its own exit status
    finish_output();
    return ended.get_exit_code();
  } catch (const CLI::ParseError& wrong) {
    const auto chosen = program.get_subcommands();
    const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
    return report(kUsage,
                  fmt::format("{}\nSee mpretrain{} --help", complaint(program, wrong), verb));
  }
  finish_output();
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  CLI::App program("Pretrains LLaMA models in low precision: text in, trained model out.",
                   "mpretrain");
  program.set_version_flag("--version", version_text);
  program.footer("Run `mpretrain help VERB` or `mpretrain VERB --help` for the options of a verb.");
  program.require_subcommand(1);
  program.fallthrough();
  LogLevel level = LogLevel::kInfo;
  add_choice(program, kLogLevel, level, "lowest level to log: debug, info, warning, error");
  program.parse_complete_callback([&level] { set_log_level(level); });
  add_train_verbs(program);
  add_data_verbs(program);
  add_model_verbs(program);
  add_weight_verbs(program);
  add_checkpoint_verbs(program);
  add_toy_verb(program);
  return parse_and_run(program, arguments);
}

// Makes a failed write a named error instead of a fatal signal: to a closed pipe, as in `| head`,
// or beyond a limit on file sizes.
void let_writes_fail() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

}  // namespace

std::string complaint(const CLI::App& program, const CLI::ParseError& wrong) {
  const std::vector<std::string> rest = program.remaining(true);
  const auto is_option = [](const std::string& text) {
    return text.find_first_not_of('-') != std::string::npos && text.starts_with("-");
  };
  const auto unknown = std::ranges::find_if(rest, is_option);
  if (unknown == rest.end()) return wrong.what();
  const std::string option = unknown->substr(0, unknown->find('='));
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&wrong) != nullptr;
  return fmt::format("unknown option '{}'{}{}", option, option_hint(option, option_names(program)),
                     missing ? fmt::format("; {}", wrong.what()) : "");
}

int run_command_line(std::vector<std::string> arguments) {
  let_writes_fail();
  log_to_standard_error();
  try {
    return run(arguments);
  } catch (const LogicError& bug) {
    return report(kBug, fmt::format("this is a bug in mpretrain: {}", bug.what()));
  } catch (const std::bad_alloc&) {
    return report(kFailure, "out of memory");
  } catch (const ReportedError&) {
    return kFailure;
  } catch (const Error& failure) {
    return report(kFailure, failure.what());
  } catch (const std::exception& failure) {  // of a library
    return report(kFailure, library_message(failure.what()));
  }
}

void hold_standard_descriptors() {
  // With input and output reversed.
  constexpr std::array kModes{O_WRONLY, O_RDONLY, O_WRONLY};
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number)
    if (fcntl(number, F_GETFD) < 0 && open("/dev/null", kModes[size_t(number)]) < 0)
      (void)open("/", O_RDONLY);
}

}  // namespace mpt
