#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "checkpoint/checkpoint_command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/units.h"

namespace mpt {
namespace {

constexpr const char* kPlaceHelp = "a run's directory, its checkpoints directory or one checkpoint";

void add_place(CLI::App& verb, std::string& target, const std::string& help) {
  add_text(verb, "directory", target, help)->required()->type_name("DIR");
}

// --- list ----------------------------------------------------------------------------------------

struct ListCommand {
  std::string path;
  Scrutiny scrutiny = Scrutiny::kSizes;
  bool json = false;
};

void run_list(const ListCommand& command) {
  const std::vector<CheckpointSummary> found =
      inspect_checkpoints(posix_file_system(), command.path, command.scrutiny);
  write_output(command.json
                   ? json_text(checkpoints_json(found), 2) + "\n"
                   : checkpoint_table(found) + set_aside_note(posix_file_system(), command.path));
}

void add_list(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("list", "List the checkpoints of a run");
  const auto command = std::make_shared<ListCommand>();
  add_place(*verb, command->path, kPlaceHelp);
  verb->add_flag_callback(
      "--verify", [command] { command->scrutiny = Scrutiny::kHashes; },
      "also read every file and compare its hash");
  verb->add_flag("--json", command->json, "print JSON");
  verb->callback([command] { run_list(*command); });
}

// --- verify --------------------------------------------------------------------------------------

void run_verify(const std::string& path) {
  const std::vector<CheckpointSummary> found =
      inspect_checkpoints(posix_file_system(), path, Scrutiny::kHashes);
  for (const CheckpointSummary& c : found)
    write_output(c.problem.empty()
                     ? fmt::format("{}: good, {}\n", c.path, format_bytes(double(c.bytes)))
                     : fmt::format("{}: bad: {}\n", c.path, c.problem));
  const auto bad = std::count_if(found.begin(), found.end(), [](const CheckpointSummary& c) {
    return c.status == CheckpointStatus::kBad;
  });
  if (bad > 0) throw error("{}: {} of {} checkpoints are bad", path, bad, found.size());
}

void add_verify(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("verify",
                                          "Read every file of checkpoints and compare its hash; "
                                          "exit status 1 if any checkpoint is bad");
  const auto path = std::make_shared<std::string>();
  add_place(*verb, *path, kPlaceHelp);
  verb->callback([path] { run_verify(*path); });
}

// --- prune ---------------------------------------------------------------------------------------

void run_prune(const PruneCommand& command) {
  const PruneResult result = prune_checkpoints(posix_file_system(), command);
  const bool removed = command.mode == PruneMode::kRemove;
  std::string text;
  for (const std::string& path : result.removed)
    text += fmt::format("{} {}\n", removed ? "removed" : "would remove", path);
  for (const std::string& path : result.kept)
    text += fmt::format("{} {}\n", removed ? "kept" : "would keep", path);
  write_output(text +
               fmt::format("{} {}\n", format_bytes(double(result.bytes)),
                           removed ? "removed" : "would be removed") +
               set_aside_note(posix_file_system(), command.path));
}

void add_prune(CLI::App& program) {
  CLI::App* verb =
      program.add_subcommand("prune", "Remove old checkpoints and leftovers of crashes");
  const auto command = std::make_shared<PruneCommand>();
  add_place(*verb, command->path, "a run's directory or its checkpoints directory");
  add_count(*verb, "--keep-last", command->retention.keep_last, {.least = 1},
            "number of newest checkpoints to keep")
      ->required()
      ->default_str("");
  add_count(*verb, "--keep-every", command->retention.keep_every_steps, {.least = 0},
            "also keep checkpoints whose step is a multiple of N; 0 = none");
  verb->add_flag_callback(
      "--dry-run", [command] { command->mode = PruneMode::kOnlySay; },
      "only print what would be removed");
  verb->callback([command] { run_prune(*command); });
}

}  // namespace

void add_checkpoint_verbs(CLI::App& program) {
  CLI::App* verb =
      program.add_subcommand("checkpoint", "List, verify, prune or average checkpoints");
  verb->require_subcommand(1);
  add_list(*verb);
  add_verify(*verb);
  add_prune(*verb);
  add_average(*verb);
}

}  // namespace mpt
