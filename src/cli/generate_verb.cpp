#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "core/text/utf8.h"
#include "evaluation/generate.h"
#include "text/corpus/raw_input.h"
#include "weights/loaded_model.h"
#include "weights/model_tokenizer.h"

namespace mpt {
namespace {

constexpr int64_t kMostPromptBytes = int64_t{64} << 20;  // of a file of prompts

struct GenerateCommand {
  std::string checkpoint;
  std::string tokenizer;
  std::vector<std::string> prompts;
  std::optional<std::string> prompt_file;
  int64_t samples = 1;  // per prompt
  GenerateOptions options;
  std::optional<bool> bos{};
  bool json = false;
  DeviceConfig device{};
};

struct Prompt {
  std::string text;
  std::string place;  // "file:line", or "" if there is only one
};

// --- prompts -------------------------------------------------------------------------------------

std::string content_of(RawInput& input) {
  std::string content;
  while (input.fill()) {
    content.append(input.unread().data(), input.unread().size());
    input.take(input.unread().size());
    if (int64_t(content.size()) > kMostPromptBytes)
      throw error("{}: has more than {}; expected a prompt a line", input.path(),
                  format_bytes(double(kMostPromptBytes)));
  }
  return content;
}

// Reads one prompt per line; an empty line is an empty prompt.
std::vector<Prompt> prompts_of_file(const std::string& path) {
  RawInput input(path);
  const std::string read = content_of(input);
  const std::string_view content = without_byte_order_mark(read);
  if (content.empty()) throw error("{}: is empty; expected a prompt a line", input.path());
  std::vector<Prompt> prompts;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    std::string line(content.substr(begin, end - begin));
    if (line.ends_with('\r')) line.pop_back();
    prompts.push_back({std::move(line), fmt::format("{}:{}: ", input.path(), prompts.size() + 1)});
    begin = end + 1;
  }
  return prompts;
}

std::vector<Prompt> prompts_of(const GenerateCommand& command) {
  std::vector<Prompt> prompts;
  for (const std::string& text : command.prompts)
    prompts.push_back({text, command.prompts.size() > 1
                                 ? fmt::format("--prompt number {}: ", prompts.size() + 1)
                                 : ""});
  if (!command.prompt_file) return prompts;
  for (Prompt& prompt : prompts_of_file(*command.prompt_file)) prompts.push_back(std::move(prompt));
  return prompts;
}

// Finds a wrong prompt before anything is printed.
void check_prompts(const std::vector<Prompt>& prompts, const Tokenizer& tokenizer,
                   GenerateOptions options, int64_t context) {
  for (const Prompt& prompt : prompts) try {
      options.prompt = prompt.text;
      (void)prompt_tokens(tokenizer, options, context);
    } catch (const Error& e) {
      throw error("{}{}", prompt.place, e.what());
    }
}

// --- output --------------------------------------------------------------------------------------

const char* reason_of(StopReason stopped) {
  switch (stopped) {
    case StopReason::kMaxTokens:
      return "limit reached";
    case StopReason::kEndOfText:
      return "end of text";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kReaderGone:
      return "output closed";
  }
  return "";
}

void log_speed(const Generation& result) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? double(tokens) / seconds : 0.0;
  };
  spdlog::info("prompt: {}, {} tokens/s; new: {} ({}), {} tokens/s",
               counted(result.prompt_tokens, "token"),
               format_count(rate(result.prompt_tokens, result.prompt_seconds)),
               counted(result.new_tokens, "token"), reason_of(result.stopped),
               format_count(rate(result.new_tokens, result.seconds)));
}

std::string json_line(const std::string& prompt, int64_t sample, const std::string& text,
                      const Generation& result) {
  const nlohmann::ordered_json json{{"prompt", prompt},
                                    {"sample", sample},
                                    {"text", text},
                                    {"prompt_tokens", result.prompt_tokens},
                                    {"new_tokens", result.new_tokens},
                                    {"stopped", reason_of(result.stopped)}};
  return json_text(json) + "\n";
}

// Prints generated text: as it is drawn, below a heading if there are several texts, or as one line
// of JSON each. All return false if the reader has gone.
class Printer {
 public:
  Printer(const GenerateCommand& command, size_t prompts)
      : json_(command.json), headed_(prompts > 1 || command.samples > 1) {}

  bool begin(size_t prompt, int64_t sample, const std::string& text) {
    text_.clear();
    if (json_) return true;
    const std::string heading = headed_ ? fmt::format("{}==> prompt {}, sample {} <==\n",
                                                      begun_ ? "\n" : "", prompt + 1, sample + 1)
                                        : "";
    begun_ = true;
    return write_output(heading + text);
  }
  bool add(std::string_view piece) {
    if (!json_) return write_output(piece);
    text_ += piece;
    return true;
  }
  bool end(const std::string& prompt, int64_t sample, const Generation& result) {
    return write_output(json_ ? json_line(prompt, sample, text_, result) : "\n");
  }

 private:
  bool json_, headed_, begun_ = false;
  std::string text_;
};

// Returns false if the reader has gone.
bool generate_samples(LlamaDecoder& decoder, const Tokenizer& tokenizer,
                      const GenerateCommand& command, size_t number, Printer& printer) {
  const std::string& prompt = command.options.prompt;
  std::optional<Continuations> continuations;
  for (int64_t sample = 0; sample < command.samples; ++sample) {
    if (!printer.begin(number, sample, prompt)) return false;
    if (!continuations) continuations.emplace(decoder, tokenizer, command.options);
    const Generation result =
        continuations->next([&](std::string_view piece) { return printer.add(piece); });
    const bool there =
        result.stopped != StopReason::kReaderGone && printer.end(prompt, sample, result);
    log_speed(result);
    if (!there) return false;
  }
  return true;
}

void run_generate(GenerateCommand& command) {
  const std::vector<Prompt> prompts = prompts_of(command);
  const LoadedModel model = load_model(posix_file_system(), command.checkpoint, command.device);
  const TokenizerFile file = find_tokenizer(model, command.tokenizer);
  const Tokenizer tokenizer = load_tokenizer(model.config, file);
  command.options.prepend_bos = command.bos.value_or(file.prepend_bos);
  command.options.ends = SpecialIds::within(model.source.ids.eos, tokenizer.vocab_size());
  check_prompts(prompts, tokenizer, command.options, model.config.batch.seq_len);
  const DecoderOptions options{.storage = model.storage(),
                               .max_positions = model.config.batch.seq_len};
  const std::string needs =
      fmt::format("{}: in addition to the weights, a context of {} tokens (batch.seq_len) needs",
                  model.checkpoint, options.max_positions);
  LlamaDecoder decoder =
      make_within_memory(*model.device, *model.allocator, needs, [&](Allocator& allocator) {
        return LlamaDecoder(model.config.model, options, *model.weights, *model.device, allocator);
      });
  Printer printer(command, prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    command.options.prompt = prompts[i].text;
    if (!generate_samples(decoder, tokenizer, command, i, printer)) return;
  }
}

// An empty prompt counts as one.
void add_prompts(CLI::App& verb, GenerateCommand& command) {
  const auto take = [&command](const CLI::results_t& texts) {
    command.prompts = texts;
    return true;
  };
  CLI::Option* prompt =
      verb.add_option("--prompt", CLI::callback_t(take),
                      "text to continue; empty: a text from its beginning; may be repeated");
  prompt->type_name("TEXT")->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_text(verb, "--prompts", command.prompt_file,
           "file of prompts, one a line; -, standard input");
}

}  // namespace

void add_generate_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("generate", "Generate text with a checkpoint");
  const auto command = std::make_shared<GenerateCommand>();
  GenerateOptions& options = command->options;
  add_checkpoint(*verb, command->checkpoint);
  add_prompts(*verb, *command);
  add_count(*verb, "--samples", command->samples, {.least = 1, .most = kMostSamples},
            "number of texts for each prompt, which differ in their draws");
  add_count(*verb, "--max-tokens", options.max_tokens, {.least = 1},
            "maximum number of new tokens");
  add_real(*verb, "--temperature", options.sampling.temperature, {},
           "sampling temperature; 0 = always the most likely token");
  add_count(*verb, "--top-k", options.sampling.top_k, {},
            "sample from the N most likely tokens; 0 = all");
  add_real(*verb, "--top-p", options.sampling.top_p, {.least = 1e-6, .most = 1},
           "sample from the most likely tokens whose probabilities come to X; 1 = all");
  add_seed(*verb, options.sampling.seed, "seed for sampling");
  add_text(*verb, "--tokenizer", command->tokenizer, "tokenizer file [that of the run]");
  add_bos(*verb, command->bos, "prepend BOS to the prompt");
  add_device(*verb, command->device);
  verb->add_flag("--json", command->json,
                 "print a JSON object a line for each text: prompt, sample, text (what follows the "
                 "prompt), prompt_tokens, new_tokens, stopped");
  verb->callback([command] {
    if (command->prompts.empty() && !command->prompt_file) throw CLI::RequiredError("--prompt");
    if (command->samples > 1 && command->options.sampling.temperature == 0)
      throw CLI::ValidationError(
          "--samples", "all samples are the same with --temperature 0; expected one above it");
    run_generate(*command);
  });
}

}  // namespace mpt
