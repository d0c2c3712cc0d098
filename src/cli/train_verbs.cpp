#include <memory>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "train/run_config.h"
#include "train/train_command.h"

namespace mpt {
namespace {

constexpr const char* kConfigHelp =
    "JSON file; a bare name is also looked up in configs/, here and where the program is installed";
constexpr const char* kProfiledSteps = "20";
constexpr const char* kSetHelp = "key.path=value, over what the file says; may be repeated";

void add_train(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("train", "Pretrain a model; the verb may be left out");
  const auto command = std::make_shared<TrainCommand>();
  add_text(*verb, "--config", command->config, kConfigHelp)->required();
  add_texts(*verb, "--set", command->overrides, kSetHelp);
  CLI::Option* resume =
      add_text(*verb, "--resume", command->resume,
               "auto: go on from the newest good checkpoint, if there is one; latest: there must be one; or "
               "the directory of a checkpoint");
  add_count(*verb, "--profile", command->profile_steps, {.least = 1, .most = 1'000'000},
            "train from the start for so many steps, after three that do not count, and print where the time "
            "of a step goes; writes nothing, not even the run's directory")
      ->default_str(kProfiledSteps)
      ->expected(0, 1)
      ->excludes(resume);
  verb->footer(
      "SIGINT (Ctrl-C), SIGTERM and SIGUSR1 stop a run: it saves the last finished step and ends with status "
      "75; "
      "--resume latest\ngoes on, to the same bits. A second SIGINT or SIGTERM ends it at once.");
  verb->callback([command] {
    if (run_train(*command) == TrainEnd::kStopped) throw CLI::RuntimeError(kStoppedStatus);
  });
}

void add_plan(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "plan", "Print what a run takes, about how long, and whether it could start; nothing is written");
  const auto command = std::make_shared<PlanCommand>();
  add_text(*verb, "--config", command->config, kConfigHelp)->required();
  add_texts(*verb, "--set", command->overrides, kSetHelp);
  add_count(*verb, "--ranks", command->ranks, {.least = 1, .most = 1 << 20},
            "what one of so many ranks takes and sends");
  verb->add_flag_callback(
      "--json", [command] { command->format = PlanFormat::kJson; }, "the figures as JSON");
  verb->add_flag_callback(
      "--check", [command] { command->check = PlanCheck::kYes; },
      "exit with status 1 if the run could not start, and say why");
  verb->callback([command] { run_plan(*command); });
}

void add_schema(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("schema", "Print the JSON Schema of configurations");
  verb->callback([] { write_output(schema_text()); });
}

}  // namespace

void add_train_verbs(CLI::App& program) {
  add_train(program);
  add_plan(program);
  add_schema(program);
}

}  // namespace mpt
