#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/program.h"
#include "core/check.h"
#include "inference/evaluate.h"
#include "inference/export_model.h"
#include "inference/loaded_model.h"

namespace mpt {
namespace {

// --- eval ----------------------------------------------------------------------------------------

// One line a figure, for each set and for all.
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
  bool json = false;
};

void run_eval(const EvalCommand& command) {
  const CheckpointEvaluation result = evaluate_checkpoint(posix_file_system(), command.options);
  write_output(command.json ? json_of(result).dump(2) + "\n" : summary_of(result));
}

void add_eval(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "eval", "Print loss and perplexity of a checkpoint on validation data");
  const auto command = std::make_shared<EvalCommand>();
  EvaluateCheckpointOptions* options = &command->options;
  add_checkpoint(*verb, options->checkpoint);
  add_texts(*verb, "--data", options->data,
            "token shards: files and globs [data.validation of the run]");
  add_count(*verb, "--tokens", options->tokens, {.least = 1},
            "maximum tokens to evaluate on [eval.tokens of the run]");
  add_count(*verb, "--micro-batch-rows", options->micro_batch_rows, {.least = 0, .most = 1 << 30},
            "sequences per forward pass; 0 = as in training");
  add_count(*verb, "--family-batch-rows", options->galore_batch_rows, {.least = 0, .most = 1 << 30},
            "sequences per batch of val_loss_family, the GaLore-style average; 0 = as in the run");
  add_device(*verb, options->device);
  verb->add_flag(
      "--json", command->json,
      "print a JSON object: checkpoint, step, tokens, val_loss, val_loss_family, val_perplexity, "
      "val_bits_per_byte, val_tokens, and validation, with the same figures of each named set");
  verb->callback([command] { run_eval(*command); });
}

// --- export --------------------------------------------------------------------------------------

struct ExportCommand {
  std::string checkpoint;
  std::string tokenizer;
  ExportOptions options;
  bool with_tokenizer = true;
  bool overwrite = false;
  bool bos = false;
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
  check_export(command.options);
  const LoadedModel model = load_model(posix_file_system(), command.checkpoint,
                                       {.type = DeviceType::kCpu}, use_of_export(command.options));
  const TokenizerFile file = find_tokenizer(model.config, command.tokenizer, model.checkpoint);
  const std::optional<Tokenizer> tokenizer = tokenizer_of_export(command, model.config, file);
  command.options.overwrite = command.overwrite ? Overwrite::kYes : Overwrite::kNo;
  command.options.prepend_bos = command.bos || file.prepend_bos;
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
  CLI::Option* tokenizer =
      add_text(*verb, "--tokenizer", command->tokenizer, "tokenizer file [that of the run]");
  verb->add_flag_callback(
          "--no-tokenizer", [command] { command->with_tokenizer = false; },
          "export only the weights")
      ->excludes(tokenizer);
  verb->add_flag("--bos", command->bos,
                 "configure the tokenizer to prepend BOS [as in the run's data]");
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
