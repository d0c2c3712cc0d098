#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "interchange/import_model.h"
#include "model/parameters.h"
#include "train/reports/run_report.h"
#include "weights/average.h"
#include "weights/convert.h"

namespace mpt {
namespace {

constexpr const char* kFormatKeysHelp =
    "precision.key=value, for options of the format; may be repeated";

void add_output(CLI::App& verb, std::string& output, Overwrite& overwrite) {
  add_text(verb, "--output", output,
           "directory to write, new or empty; eval, generate, export and train.init_from take it")
      ->required();
  verb.add_flag_callback(
      "--overwrite", [&overwrite] { overwrite = Overwrite::kYes; },
      "replace an earlier checkpoint of weights");
}

std::string weights_row(const RunConfig& config, const WeightChanges& changes) {
  return fmt::format("weights          {}, {}\n", name_of(config.precision.weights),
                     changes.text());
}

// --- import --------------------------------------------------------------------------------------

// Returns " of 8192: export with --context 8192" if the source has a longer context.
std::string shorter_than_source(const ImportedModel& imported) {
  const int64_t longest = imported.context.value_or(0);
  if (longest <= imported.config.batch.seq_len) return "";
  return fmt::format(" of {0}: export with --context {0}", longest);
}

std::string summary_of(const std::string& output, const ImportedModel& imported) {
  const LlamaConfig& model = imported.config.model;
  return fmt::format(
             "output           {}\n"
             "model            {} parameters, vocabulary {}, context {}{}\n",
             output, grouped(total_elements(llama_parameters(model))), model.vocab_size,
             imported.config.batch.seq_len, shorter_than_source(imported)) +
         weights_row(imported.config, imported.changes) +
         fmt::format("tokenizer        {}\n", imported.note);
}

void add_import(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "import", "Read the Hugging Face directory of a LLaMA or Qwen3 into a checkpoint");
  const auto options = std::make_shared<ImportOptions>();
  add_text(*verb, "directory", options->directory,
           "directory with config.json and model.safetensors, or its index and shards")
      ->required()
      ->type_name("DIR");
  add_output(*verb, options->output, options->overwrite);
  const auto set_format = [options](const std::string& text) {
    options->weights = enum_from_name<WeightFormat>(text);
    if (!options->weights)
      throw CLI::ValidationError(
          "--weights", fmt::format("'{}' is not one of: {}", text, all_names<WeightFormat>()));
  };
  verb->add_option_function<std::string>(
          "--weights", set_format,
          fmt::format("format to store weights in: {} [bf16 if all are BF16, else fp32]",
                      all_names<WeightFormat>()))
      ->type_name("NAME");
  add_texts(*verb, "--set", options->overrides, kFormatKeysHelp)->allow_extra_args(false);
  add_count(*verb, "--seq-len", options->seq_len, {.least = 1, .most = 1 << 20},
            "tokens of context [max_position_embeddings]");
  add_texts(*verb, "--ignore", options->ignored,
            "key of config.json that changes nothing of what the model computes; may be repeated")
      ->allow_extra_args(false);
  verb->add_flag_callback(
      "--no-tokenizer", [options] { options->tokenizer = ImportTokenizer::kLeave; },
      "do not copy the tokenizer");
  verb->callback([options] {
    write_output(summary_of(options->output, import_model(posix_file_system(), *options)));
  });
}

// --- convert -------------------------------------------------------------------------------------

std::string summary_of(const std::string& output, const ConvertedCheckpoint& converted) {
  return fmt::format(
             "output           {}\n"
             "checkpoint       {}, step {}\n",
             output, converted.checkpoint, converted.step) +
         weights_row(converted.config, converted.changes);
}

void add_convert(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "convert", "Write the weights of a checkpoint in another format, without optimizer states");
  const auto options = std::make_shared<ConvertOptions>();
  add_text(*verb, "checkpoint", options->checkpoint,
           "checkpoint directory, or run directory for its newest good checkpoint")
      ->required()
      ->type_name("DIR");
  add_output(*verb, options->wanted.output, options->overwrite);
  add_choice(*verb, "--weights", options->wanted.weights,
             "format to store weights in: " + all_names<WeightFormat>())
      ->required()
      ->default_str("");
  add_texts(*verb, "--set", options->wanted.overrides, kFormatKeysHelp)->allow_extra_args(false);
  verb->callback([options] {
    write_output(
        summary_of(options->wanted.output, convert_checkpoint(posix_file_system(), *options)));
  });
}

// --- checkpoint average --------------------------------------------------------------------------

std::string summary_of(const std::string& output, const AveragedCheckpoints& averaged) {
  std::string text = fmt::format("output           {}\n", output);
  for (const std::string& checkpoint : averaged.checkpoints)
    text += fmt::format("checkpoint       {}\n", checkpoint);
  return text + weights_row(averaged.config, averaged.changes);
}

}  // namespace

void add_average(CLI::App& checkpoint) {
  CLI::App* verb = checkpoint.add_subcommand("average",
                                             "Write the mean of the weights of several checkpoints "
                                             "of one model, or the EMA that a run keeps");
  const auto options = std::make_shared<AverageOptions>();
  add_texts(*verb, "checkpoints", options->checkpoints,
            "checkpoint directories, or one run directory with --last or --ema")
      ->required()
      ->type_name("DIR");
  add_count(*verb, "--last", options->last, {.least = 2},
            "the newest so many checkpoints of the run");
  add_real(*verb, "--decay", options->decay, {.least = 1e-6, .most = 1},
           "exponential mean: the weight of each checkpoint is that of the next times this");
  verb->add_flag("--ema", options->ema,
                 "the exponential moving average that one checkpoint holds (train.ema_decay)");
  add_output(*verb, options->wanted.output, options->overwrite);
  add_choice(*verb, "--weights", options->wanted.weights,
             "format to store weights in: " + all_names<WeightFormat>());
  add_texts(*verb, "--set", options->wanted.overrides, kFormatKeysHelp)->allow_extra_args(false);
  verb->callback([options] {
    write_output(
        summary_of(options->wanted.output, average_checkpoints(posix_file_system(), *options)));
  });
}

void add_weight_verbs(CLI::App& program) {
  add_import(program);
  add_convert(program);
}

}  // namespace mpt
