#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "config/run_config_json.h"
#include "core/io/output_directory.h"
#include "core/io/output_file.h"
#include "plan/plan_command.h"
#include "ranks/local_launch.h"
#include "toy/toy.h"
#include "train/train_command.h"
#include "watch/run_page.h"

namespace mpt {
namespace {

constexpr const char* kConfigHelp =
    "JSON file; a bare name is also looked up in ./configs and in the installed configs";
constexpr const char* kProfiledSteps = "20";
constexpr const char* kOverridesHelp = "key.path=value, overrides the file; may be repeated";

// Options of a training run, for `train` and for `launch`, which passes them on.
void add_train_options(CLI::App& verb, TrainCommand& command) {
  add_text(verb, "--config", command.config, kConfigHelp)->required();
  add_texts(verb, "--set", command.overrides, kOverridesHelp);
  CLI::Option* resume =
      add_text(verb, "--resume", command.resume,
               "auto: resume from the newest good checkpoint, or start a new run if there is no "
               "checkpoint; latest: fail if there is none; or the directory of a checkpoint");
  add_count(verb, "--profile", command.profile_steps, {.least = 1, .most = 1'000'000},
            "train N steps from scratch, after three unmeasured ones, and print where the time of "
            "a step goes; only prints, never touches the run directory")
      ->default_str(kProfiledSteps)
      ->expected(0, 1)
      ->excludes(resume);
}

void add_train(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("train", "Pretrain a model; this is the default verb");
  const auto command = std::make_shared<TrainCommand>();
  add_train_options(*verb, *command);
  verb->footer(
      "SIGINT (Ctrl-C), SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and SIGHUP stop a run: it saves the "
      "last finished step and exits with status\n75; --resume latest continues it bit for bit. A "
      "second SIGINT or SIGTERM ends it at once. Under nohup it does not notice SIGHUP.\nAn error "
      "of data, evaluation or logging ends a run in the same way, but with status 1.");
  verb->callback([command] {
    command->program = version_text();
    if (run_train(*command) == TrainEnd::kStopped) throw CLI::RuntimeError(kStoppedStatus);
  });
}

// Throws as `train` would, once rather than on every rank.
void check_train_arguments(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "train") arguments.erase(arguments.begin());
  CLI::App train("", "mpretrain train");
  TrainCommand command;
  add_train_options(train, command);
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 expects
  try {
    train.parse(std::move(arguments));
  } catch (const CLI::Success&) {  // --help
    throw;
  } catch (const CLI::ParseError& wrong) {
    throw CLI::ParseError(complaint(train, wrong), wrong.get_exit_code());
  }
  load_run_config(command.config, command.overrides);
}

// "gpu07:29500"
void set_master(LocalLaunch& launch, const std::string& text) {
  constexpr int kMostPort = 65535;
  const size_t colon = std::min(text.rfind(':'), text.size());
  const char *port = text.data() + std::min(colon + 1, text.size()),
             *end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(port, end, launch.master_port);
  if (colon == 0 || fault != std::errc() || rest != end || launch.master_port < 1 ||
      launch.master_port > kMostPort)
    throw CLI::ValidationError(
        "--master", fmt::format("'{}' is not a machine and a port, as in gpu07:29500", text));
  launch.master_address = text.substr(0, colon);
}

void check_nodes(const LocalLaunch& launch) {
  if (launch.node >= launch.nodes)
    throw CLI::ValidationError("--node", fmt::format("{} of {} machines: they count from 0 to {}",
                                                     launch.node, launch.nodes, launch.nodes - 1));
  if (launch.nodes > 1 && launch.master_address.empty())
    throw CLI::ValidationError("--master", "is required with several --nodes");
}

void launch(LocalLaunch& launch) {
  check_nodes(launch);
  check_train_arguments(launch.arguments);
  launch.program = std::filesystem::read_symlink("/proc/self/exe").string();
  const LaunchEnd end = launch_locally(launch, kStoppedStatus);
  if (!end.failure.empty()) spdlog::error("launch: {}", end.failure);
  if (end.exit_code != 0) throw CLI::RuntimeError(end.exit_code);
}

void add_launch(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "launch", "Train with several ranks on this machine: launch --ranks N -- --config FILE ...");
  const auto command = std::make_shared<LocalLaunch>();
  command->run_id = "mpretrain";
  add_count(*verb, "--ranks", command->ranks, {.least = 1, .most = 4096},
            "processes to start here, each on its own GPU or with its share of the cores")
      ->required();
  add_count(*verb, "--nodes", command->nodes, {.least = 1, .most = 4096},
            "machines, each of which runs this command");
  add_count(*verb, "--node", command->node, {.most = 4095}, "which of them this one is");
  verb->add_option_function<std::string>(
          "--master", [command](const std::string& text) { set_master(*command, text); },
          "with several machines: the first, and a free port there, where the ranks meet")
      ->type_name("HOST:PORT");
  add_text(*verb, "--run-id", command->run_id,
           "with several machines: keeps runs apart that meet at one port");
  verb->add_option("ARGUMENTS", command->arguments,
                   "after --: the options of train, for every rank")
      ->required();
  verb->footer(
      "Signals are passed on to the ranks. If one fails, the others are ended, and the exit status "
      "is that rank's, or 128 plus the\nsignal that ended it; 75 if the run was stopped and saved. "
      "torchrun, srun and mpirun start ranks as well.");
  verb->callback([command] { launch(*command); });
}

void add_plan(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("plan",
                                          "Print a run's memory, disk space and estimated time, "
                                          "and whether it could start; writes nothing");
  const auto command = std::make_shared<PlanCommand>();
  add_text(*verb, "--config", command->config, kConfigHelp)->required();
  add_texts(*verb, "--set", command->overrides, kOverridesHelp);
  add_count(*verb, "--ranks", command->ranks, {.least = 1, .most = 1 << 20},
            "plan for N ranks: memory and traffic of one of them");
  verb->add_flag_callback(
      "--json", [command] { command->format = PlanFormat::kJson; }, "print JSON");
  verb->add_flag_callback(
      "--check", [command] { command->check = PlanCheck::kYes; },
      "exit with status 1 if the run could not start, and say why; reads all tokens of shards "
      "without a manifest");
  verb->add_flag("--resume", command->resume,
                 "plan for a run that resumes: its directory may hold checkpoints");
  verb->callback([command] { run_plan(*command); });
}

struct ReportCommand {
  std::vector<std::string> runs;
  std::string output = "report.html";
};

void run_report(const ReportCommand& command) {
  FileSystem& fs = posix_file_system();
  check_replaces_its_kind(fs, command.output, "<!DOCTYPE html>", "a page");
  OutputFile page(fs, command.output);  // opened before the work
  std::vector<RunRecords> runs;
  for (const std::string& path : command.runs) runs.push_back(read_run(fs, path));
  name_apart(runs, command.runs);
  page.append(bytes_of(run_page(runs)));
  page.commit();
  write_output(command.output + "\n");
}

void add_report(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "report", "Write a page for browsers about runs: curves, memory, what differs");
  const auto command = std::make_shared<ReportCommand>();
  add_texts(*verb, "runs", command->runs, "directories of runs, which may still train")
      ->required()
      ->type_name("RUN");
  add_text(*verb, "--output", command->output,
           "the page, one HTML file that loads nothing; an earlier one is replaced");
  verb->callback([command] { run_report(*command); });
}

void add_schema(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("schema", "Print the JSON Schema of configurations");
  verb->callback([] { write_output(schema_text()); });
}

}  // namespace

void add_train_verbs(CLI::App& program) {
  add_train(program);
  add_launch(program);
  add_plan(program);
  add_report(program);
  add_schema(program);
}

void add_toy_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "toy",
      "Fit numbers stored in BF16 to targets with additive, multiplicative and combined steps");
  const auto options = std::make_shared<ToyOptions>();
  add_text(*verb, "--output", options->output, "output directory, new or empty")->required();
  add_choices(*verb, "--regimes", options->regimes, "regimes to fit [all]");
  add_choices(*verb, "--rules", options->rules, "update rules to fit with [all]");
  add_choice(
      *verb, "--loss", options->loss,
      "entry_quartic: mean of c d^4 over draws; frobenius: square of the mean of sqrt(c) d^2");
  add_choice(*verb, "--format", options->weights,
             "format that weights are rounded to after each step: bf16, fp32");
  add_choice(
      *verb, "--sampling", options->sampling,
      "how a step samples entries: with replacement (replacement), or each entry once (full)");
  constexpr int64_t kMost = 1 << 24;
  add_count(*verb, "--batch", options->batch, {.least = 1, .most = kMost}, "draws per step");
  add_count(*verb, "--steps", options->steps, {.least = 1, .most = kMost}, "");
  add_count(*verb, "--points", options->points, {.least = 1, .most = kMost},
            "losses recorded, evenly spaced over the steps");
  constexpr CountRange kExponents{.least = -100, .most = 100};
  add_count(*verb, "--log2-rate-from", options->log2_rate_from, kExponents,
            "binary logarithm of the lowest rate");
  add_count(*verb, "--log2-rate-to", options->log2_rate_to, kExponents,
            "binary logarithm of the highest rate");
  add_count(*verb, "--rates-per-doubling", options->rates_per_doubling, {.least = 1, .most = 64},
            "rates per factor of two, evenly spaced in their logarithm");
  add_seed(*verb, options->seed, "seed for targets and draws");
  add_count(*verb, "--seeds", options->seeds, {.least = 1, .most = 10'000},
            "number of seeds, starting at --seed; losses are averaged over them");
  add_threads(*verb, options->threads);
  verb->add_flag_callback(
      "--overwrite", [options] { options->overwrite = Overwrite::kYes; },
      "replace an earlier result");
  verb->callback([options] { write_output(toy_table(run_toy(posix_file_system(), *options))); });
}

}  // namespace mpt
