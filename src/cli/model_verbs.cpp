#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "core/io/output_file.h"
#include "core/json/json_parse.h"
#include "evaluation/evaluate.h"
#include "evaluation/evaluate_checkpoint.h"
#include "evaluation/tasks/evaluate_tasks.h"
#include "evaluation/tasks/tasks_of_checkpoint.h"
#include "interchange/export_model.h"
#include "weights/loaded_model.h"
#include "weights/model_tokenizer.h"

namespace mpt {
namespace {

// --- eval ----------------------------------------------------------------------------------------

// One line per figure, for each set and for all.
std::string figures_of(const Evaluation& mean, const std::string& prefix) {
  std::string text = fmt::format("{:<18} {}\n", prefix + "tokens", mean.tokens);
  const auto add = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<18} {}\n", prefix + name, value);
  };
  add("val_loss", fmt::format("{:.6f}", mean.loss));
  add("val_perplexity", fmt::format("{:.4f}", mean.perplexity()));
  if (mean.bits_per_byte) add("val_bits_per_byte", fmt::format("{:.6f}", *mean.bits_per_byte));
  add("val_loss_family", fmt::format("{:.6f}", mean.galore_loss));
  return text;
}

std::string summary_of(const CheckpointEvaluation& result) {
  std::string text =
      fmt::format("{:<18} {}\n{:<18} {}\n", "checkpoint", result.checkpoint, "step", result.step);
  for (const auto& [name, mean] : result.result.sets) text += figures_of(mean, name + ": ");
  return text + figures_of(result.result.all, "");
}

nlohmann::ordered_json json_of(const CheckpointEvaluation& result) {
  nlohmann::ordered_json json{{"checkpoint", result.checkpoint},
                              {"step", result.step},
                              {"tokens", result.result.all.tokens}};
  json.update(validation_json(result.result));
  return json;
}

struct EvalCommand {
  EvaluateCheckpointOptions options;
  std::vector<std::string> task_files;  // NAME=FILE
  TasksOptions tasks;
  std::optional<std::string> details;
  bool json = false;

  // If only tasks are given, the validation data of the run is not used.
  [[nodiscard]] bool wants_loss() const { return task_files.empty() || !options.data.empty(); }
};

// Several files of one task are concatenated.
NamedTexts named_tasks(const std::vector<std::string>& texts) {
  NamedTexts tasks;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size())
      throw CLI::ValidationError("--tasks", "'" + text + "' is not NAME=FILE");
    const std::string name(name_of(choice_of<TaskKind>("--tasks", text.substr(0, equals))));
    auto found = std::ranges::find(tasks, name, &NamedTexts::value_type::first);
    if (found == tasks.end()) found = tasks.insert(tasks.end(), {name, {}});
    found->second.push_back(text.substr(equals + 1));
  }
  return tasks;
}

struct EvalOutput {
  std::string text;
  nlohmann::ordered_json json;
  std::string details{};
};

void evaluate_loss(EvalCommand& command, EvalOutput& output) {
  const CheckpointEvaluation result = evaluate_checkpoint(posix_file_system(), command.options);
  output = {summary_of(result), json_of(result)};
}

void evaluate_tasks(const EvalCommand& command, EvalOutput& output) {
  const TasksOfCheckpoint found = evaluate_tasks(posix_file_system(), command.tasks);
  if (!command.wants_loss())
    output = {
        fmt::format("{:<18} {}\n{:<18} {}\n", "checkpoint", found.checkpoint, "step", found.step),
        {{"checkpoint", found.checkpoint}, {"step", found.step}}};
  for (const TaskResult& result : found.results) {
    output.text += fmt::format("{:<18} {}\n", name_of(result.kind), summary_of(result));
    output.details += details_of(result);
  }
  output.json["tasks"] = tasks_json(found.results);
}

EvalOutput evaluation_at(EvalCommand& command, const std::string& checkpoint) {
  EvalOutput output;
  command.options.checkpoint = command.tasks.checkpoint = checkpoint;
  if (command.wants_loss()) evaluate_loss(command, output);
  if (!command.task_files.empty()) evaluate_tasks(command, output);
  return output;
}

// Loss and tasks are of the same checkpoint, even while its run continues.
EvalOutput evaluated(EvalCommand& command) {
  const std::string given = command.options.checkpoint;
  if (!command.wants_loss() || command.task_files.empty()) return evaluation_at(command, given);
  return with_checkpoint(posix_file_system(), given, [&](const std::string& checkpoint) {
    return evaluation_at(command, checkpoint);
  });
}

void run_eval(EvalCommand& command) {
  std::optional<OutputFile> details;  // opened before anything is computed
  if (command.details) details.emplace(posix_file_system(), *command.details);
  command.tasks.micro_batch_rows = command.options.micro_batch_rows;
  command.tasks.device = command.options.device;
  const EvalOutput output = evaluated(command);
  write_output(command.json ? json_text(output.json, 2) + "\n" : output.text);
  if (!details) return;
  details->append(bytes_of(output.details));
  details->commit();
}

// Call before anything is computed.
void check_eval(const EvalCommand& command) {
  if (!command.wants_loss() && (command.options.tokens || command.options.galore_batch_rows > 0))
    throw CLI::ValidationError(command.options.tokens ? "--tokens" : "--family-batch-rows",
                               "means nothing with --tasks and without --data");
  if (!command.details) return;
  const std::string directory = parent_directory(*command.details);
  if (!posix_file_system().is_directory(directory))
    throw error("--details {}: there is no directory {}", *command.details, directory);
  if (posix_file_system().is_directory(*command.details))
    throw error("--details {}: is a directory; expected a file", *command.details);
  check_replaces_its_kind(posix_file_system(), *command.details, kDetailsBegin,
                          "an earlier file of --details");
}

void add_tasks(CLI::App& verb, EvalCommand& command) {
  CLI::Option* tasks =
      add_texts(verb, "--tasks", command.task_files,
                "NAME=FILE: examples of a task, JSON lines, in place of the run's validation data; "
                "may be repeated; NAME is one of: " +
                    all_names<TaskKind>());
  add_count(verb, "--task-examples", command.tasks.examples, {.least = 0},
            "maximum examples of each task; 0 = all")
      ->needs(tasks);
  add_text(verb, "--details", command.details,
           "file for the results of each example of the tasks, JSON lines")
      ->needs(tasks);
  add_text(verb, "--tokenizer", command.tasks.tokenizer,
           "tokenizer file for the tasks [that of the run]")
      ->needs(tasks);
  const BosOptions bos =
      add_bos(verb, command.tasks.prepend_bos, "prepend BOS to the texts of the tasks");
  bos.with->needs(tasks);
  bos.without->needs(tasks);
}

void add_eval(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "eval", "Print loss and perplexity of a checkpoint, or how it does on tasks");
  const auto command = std::make_shared<EvalCommand>();
  EvaluateCheckpointOptions* options = &command->options;
  add_checkpoint(*verb, options->checkpoint);
  add_texts(*verb, "--data", options->data,
            "token shards: files and globs [data.validation of the run]");
  add_count(*verb, "--tokens", options->tokens, {.least = 1},
            "tokens to evaluate on at most, up to the end of a row [eval.tokens of the run]");
  add_count(*verb, "--micro-batch-rows", options->micro_batch_rows, {.least = 0, .most = 1 << 30},
            "sequences per forward pass; 0 = as in training");
  add_count(*verb, "--family-batch-rows", options->galore_batch_rows, {.least = 0, .most = 1 << 30},
            "sequences per batch of val_loss_family, the GaLore-style average; 0 = as in the run");
  add_tasks(*verb, *command);
  add_device(*verb, options->device);
  verb->add_flag(
      "--json", command->json,
      "print a JSON object: checkpoint, step, tokens, val_loss, val_loss_family, val_perplexity, "
      "val_bits_per_byte, val_tokens, validation, with the same figures of each named set, and "
      "tasks, with acc, acc_norm or perplexity, standard errors and examples of each");
  verb->callback([command] {
    command->tasks.tasks = named_tasks(command->task_files);
    check_eval(*command);
    run_eval(*command);
  });
}

// --- export --------------------------------------------------------------------------------------

struct ExportCommand {
  std::string checkpoint;
  std::string tokenizer;
  ExportOptions options;
  bool with_tokenizer = true;
  bool overwrite = false;
  std::optional<bool> bos{};
};

// nullopt if the user wants no tokenizer.
std::optional<Tokenizer> tokenizer_of_export(const ExportCommand& command, const RunConfig& config,
                                             const TokenizerFile& file) {
  if (!command.with_tokenizer) return std::nullopt;
  if (file.path.empty())
    throw error("{}, or export only the weights with --no-tokenizer", missing_tokenizer(config));
  return load_tokenizer(config, file);
}

void check_export(const ExportOptions& options) {
  if (options.type != MatrixType::kStored && options.format != ExportFormat::kGguf)
    throw error("--type {}: is an option of --format gguf; --format {} writes weights as stored",
                name_of(options.type), name_of(options.format));
}

const char* kind_of(ExportFormat format) {
  switch (format) {
    case ExportFormat::kHf:
      return "a Hugging Face model";
    case ExportFormat::kHfCodes:
      return "a Hugging Face model of its codes";
    case ExportFormat::kGguf:
      return "a GGUF file";
  }
  return "";
}

void run_export(ExportCommand& command) {
  command.options.overwrite = command.overwrite ? Overwrite::kYes : Overwrite::kNo;
  check_export(command.options);
  check_export_output(posix_file_system(), command.options);
  const LoadedModel model = load_model(posix_file_system(), command.checkpoint,
                                       {.type = DeviceType::kCpu}, use_of_export(command.options));
  const TokenizerFile file = find_tokenizer(model, command.tokenizer);
  const std::optional<Tokenizer> tokenizer = tokenizer_of_export(command, model.config, file);
  command.options.prepend_bos = command.bos.value_or(file.prepend_bos);
  export_model(posix_file_system(), model, tokenizer ? &*tokenizer : nullptr, command.options);
  write_output(fmt::format("{}: step {} of {} as {}{}\n", command.options.output, model.step,
                           model.config.name, kind_of(command.options.format),
                           tokenizer ? "" : ", without a tokenizer"));
}

void add_export(CLI::App& program) {
  CLI::App* verb =
      program.add_subcommand("export", "Write a checkpoint as a Hugging Face model or GGUF file");
  const auto command = std::make_shared<ExportCommand>();
  ExportOptions& options = command->options;
  add_checkpoint(*verb, command->checkpoint);
  add_text(*verb, "--output", options.output,
           "output directory, new or empty; file ending in .gguf for --format gguf")
      ->required();
  add_choice(*verb, "--format", options.format,
             "hf: weights decoded; hf-codes: as stored, for compressed-tensors; gguf: one file, "
             "for llama.cpp");
  add_choice(*verb, "--type", options.type, "matrices of a GGUF file: " + all_names<MatrixType>());
  add_count(*verb, "--context", options.context, {.least = 1, .most = INT32_MAX},
            "tokens of the longest text that the files name [batch.seq_len of the run]");
  CLI::Option* tokenizer =
      add_text(*verb, "--tokenizer", command->tokenizer, "tokenizer file [that of the run]");
  const BosOptions bos =
      add_bos(*verb, command->bos,
              "configure the tokenizer to prepend BOS; a tokenizer.json keeps its template");
  verb->add_flag_callback(
          "--no-tokenizer", [command] { command->with_tokenizer = false; },
          "export only the weights")
      ->excludes(tokenizer)
      ->excludes(bos.with)
      ->excludes(bos.without);
  verb->add_flag("--overwrite", command->overwrite, "replace an earlier export");
  verb->callback([command] { run_export(*command); });
}

}  // namespace

void add_model_verbs(CLI::App& program) {
  add_eval(program);
  add_generate_verb(program);
  add_export(program);
}

}  // namespace mpt
