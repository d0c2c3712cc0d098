#include "interchange/import_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "config/run_config_json.h"
#include "config/run_device.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "interchange/hugging_face_config.h"
#include "interchange/hugging_face_weights.h"
#include "text/subword/subword_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files/tokenizer_settings.h"
#include "weights/weights_checkpoint.h"

namespace mpt {
namespace {

constexpr int64_t kMostContext = 1 << 20;  // of batch.seq_len

void require_directory(FileSystem& fs, const std::string& directory) {
  if (!fs.exists(directory)) throw error("{}: no such directory", directory);
  if (!fs.is_directory(directory))
    throw error("{}: not a directory; expected one with {} and safetensors files", directory,
                kModelConfigFile);
  if (!has_optional_file(fs, in_directory(directory, kModelConfigFile)))
    throw error("{}: has no {}; expected the directory of a Hugging Face model", directory,
                kModelConfigFile);
}

int64_t context_of(const HuggingFaceModel& read, const ImportOptions& options,
                   const std::string& path) {
  if (options.seq_len) return *options.seq_len;
  if (!read.max_position_embeddings)
    throw error("{}: max_position_embeddings: missing; name the tokens of context with --seq-len",
                path);
  if (*read.max_position_embeddings > kMostContext)
    throw error(
        "{}: max_position_embeddings: {} tokens are more than the {} of the longest context here; "
        "name fewer with --seq-len",
        path, *read.max_position_embeddings, kMostContext);
  return *read.max_position_embeddings;
}

// Returns a run of this model with rows of its context, one per step. `path` is named in errors.
RunConfig base_config(const LlamaConfig& model, int64_t context, const std::string& path) {
  RunConfig config;
  config.name = "import";
  config.model = model;
  config.batch.seq_len = config.batch.tokens_per_step = context;
  config.train.steps = 1;
  return parse_run_config(JsonDocument::of_value(resolved_json(config), path));
}

// Throws Error unless it is a tokenizer that fits in the vocabulary.
Tokenizer checked_tokenizer(const std::string& path, const LlamaConfig& model) {
  constexpr const char* kLeave = "leave it out with --no-tokenizer";
  std::optional<Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::load(path);
  } catch (const Error& defect) {
    throw error("{}; {}", defect.what(), kLeave);
  }
  if (tokenizer->vocab_size() > model.vocab_size)
    throw error("{}: has {} pieces, but the vocabulary of the model is {}; {}", path,
                tokenizer->vocab_size(), model.vocab_size, kLeave);
  return std::move(*tokenizer);
}

// Returns whether the tokenizer prepends BOS to a text. Unless its settings say so, that is the
// default of LlamaTokenizer for a SentencePiece model, and that of its template for a
// tokenizer.json.
bool prepends_bos(const Tokenizer& tokenizer, const TokenizerSettings& settings) {
  if (tokenizer.bos_id() < 0) return false;
  const bool otherwise =
      tokenizer.subwords() == nullptr || tokenizer.subwords()->parts().template_begins_with_bos;
  return settings.begin_with_bos.value_or(otherwise);
}

// tokenizer.json does not name EOS and may not name BOS, and a SentencePiece model lacks the tokens
// that were added to it.
void warn_of_names(const Tokenizer& tokenizer, const TokenizerSettings& settings) {
  const auto compare = [&](const char* key, const std::string& named, int64_t id) {
    const std::string own = id < 0 ? "" : tokenizer.id_to_piece(id);
    if (!named.empty() && named != own)
      spdlog::warn("{}: {} says that {} is '{}'; here it is {}", tokenizer.path(), kTokenizerConfig,
                   key, named, own.empty() ? "none" : "'" + own + "'");
  };
  compare("bos_token", settings.bos_token, tokenizer.bos_id());
  compare("eos_token", settings.eos_token, tokenizer.eos_id());
}

void warn_of_added_tokens(const Tokenizer& tokenizer, const std::map<int64_t, std::string>& added) {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> missing;
  for (const auto& [id, text] : added)
    if (const bool has_id = id >= 0 && id < tokenizer.vocab_size();
        !text.empty() && (!has_id || tokenizer.id_to_piece(id) != text))
      missing.push_back(text);
  if (missing.empty()) return;
  spdlog::warn("{}: lacks {} that files next to it add, and splits their text: {}{}",
               tokenizer.path(), counted(std::ssize(missing), "token"),
               fmt::join(std::span(missing).first(std::min(missing.size(), kMostNamed)), " "),
               missing.size() > kMostNamed ? " ..." : "");
}

// A tiktoken file does not define how text is split; a tokenizer.json next to it does.
std::string tokenizer_of_model(FileSystem& fs, const std::string& directory) {
  const std::string first = tokenizer_in(directory),
                    json = in_directory(directory, "tokenizer.json");
  if (first.empty() || first == json || !has_optional_file(fs, json)) return first;
  try {
    read_tokenizer_file(first);
    return first;
  } catch (const Error& defect) {
    spdlog::info("{}; {} is taken", defect.what(), json);
    return json;
  }
}

// EOS ends every document in data made with the tokenizer.
void warn_of_eos(const Tokenizer& tokenizer, const SpecialIds& ids, int64_t vocab_size) {
  const std::vector<int64_t> ends = SpecialIds::within(ids.eos, vocab_size);
  if (ends.empty() || std::ranges::find(ends, tokenizer.eos_id()) != ends.end()) return;
  const auto named = [&](int64_t id) {
    return id >= 0 && id < tokenizer.vocab_size()
               ? fmt::format("{} ('{}')", id, tokenizer.id_to_piece(id))
               : fmt::format("{}", id);
  };
  spdlog::warn(
      "{}: the model's texts end with token {}; data made with this tokenizer has {} there",
      tokenizer.path(), named(ends.front()),
      tokenizer.eos_id() < 0 ? "none" : named(tokenizer.eos_id()));
}

struct FoundTokenizer {
  std::string path{};  // "": none
  std::string note{};  // a one-line remark on it
  bool prepends_bos = false;
};

FoundTokenizer tokenizer_to_copy(FileSystem& fs, const ImportOptions& options,
                                 const HuggingFaceModel& read) {
  const LlamaConfig& model = read.model;
  if (options.tokenizer == ImportTokenizer::kLeave)
    return {.note = "left out; generate and export need --tokenizer, and --bos if texts begin so"};
  const std::string path = tokenizer_of_model(fs, options.directory);
  if (path.empty()) return {.note = "none in the directory; generate needs --tokenizer"};
  const Tokenizer tokenizer = checked_tokenizer(path, model);
  const TokenizerSettings settings = read_tokenizer_settings(fs, options.directory);
  warn_of_names(tokenizer, settings);
  warn_of_added_tokens(tokenizer, settings.added);
  warn_of_eos(tokenizer, read.ids, model.vocab_size);
  const bool bos = prepends_bos(tokenizer, settings);
  return {.path = path,
          .note = std::string(tokenizer.file_name()) + (bos ? "; its texts begin with BOS" : ""),
          .prepends_bos = bos};
}

HuggingFaceModel read_model(FileSystem& fs, const ImportOptions& options, const std::string& path) {
  HuggingFaceModel read =
      llama_config_of_hugging_face(fs.read_file(path, kMaxJsonBytes), path, options.ignored);
  const std::string generation = in_directory(options.directory, kGenerationConfig);
  if (has_optional_file(fs, generation))
    read.ids = with_generation_config(std::move(read.ids), fs.read_file(generation, kMaxJsonBytes),
                                      generation);
  return read;
}

}  // namespace

ImportedModel import_model(FileSystem& fs, const ImportOptions& options) {
  check_weights_output(fs, options.output, options.overwrite);
  require_directory(fs, options.directory);
  const std::string path = in_directory(options.directory, kModelConfigFile);
  const HuggingFaceModel read = read_model(fs, options, path);
  const RunConfig base = base_config(read.model, context_of(read, options, path), path);
  FoundTokenizer tokenizer = tokenizer_to_copy(fs, options, read);
  ImportedModel imported{.config = {},
                         .changes = {},
                         .context = read.max_position_embeddings,
                         .tokenizer = std::move(tokenizer.path),
                         .note = std::move(tokenizer.note)};
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  HuggingFaceWeights weights(fs, options.directory, read.model, *device);
  imported.config = config_of_weights(base, {.output = options.output,
                                             .weights = options.weights.value_or(weights.format()),
                                             .overrides = options.overrides});
  imported.changes = write_weights_checkpoint(
      fs,
      {.output = options.output,
       .overwrite = options.overwrite,
       .config = imported.config,
       .tokenizer = imported.tokenizer,
       .weights_of = {{"path", options.directory}},
       .source = {.begin_with_bos = tokenizer.prepends_bos, .ids = read.ids}},
      weights, *device);
  return imported;
}

}  // namespace mpt
