#include "inference/import_model.h"

#include <optional>

#include <spdlog/spdlog.h>

#include "config/run_inputs.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "data/subword/subword_tokenizer.h"
#include "data/tokenizer.h"
#include "inference/hugging_face_config.h"
#include "inference/hugging_face_weights.h"
#include "inference/weights_checkpoint.h"

namespace mpt {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr int64_t kMostContext = 1 << 20;  // of batch.seq_len

void require_directory(FileSystem& fs, const std::string& directory) {
  if (!fs.exists(directory)) throw error("{}: no such directory", directory);
  if (!fs.is_directory(directory))
    throw error("{}: not a directory; expected one with {} and safetensors files", directory,
                kConfig);
  if (!fs.exists(in_directory(directory, kConfig)))
    throw error("{}: has no {}; expected the directory of a Hugging Face model", directory,
                kConfig);
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

// A run of this model with rows of its context, one a step. `path` is named in errors.
RunConfig base_config(const LlamaConfig& model, int64_t context, const std::string& path) {
  RunConfig config;
  config.name = "import";
  config.model = model;
  config.batch.seq_len = config.batch.tokens_per_step = context;
  config.train.steps = 1;
  return parse_run_config(JsonDocument::of_value(resolved_json(config), path));
}

// Throws Error unless it is a tokenizer that the vocabulary has room for.
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

nlohmann::json tokenizer_config(FileSystem& fs, const std::string& directory) {
  const std::string path = in_directory(directory, kTokenizerConfig);
  nlohmann::json content = nlohmann::json::object();
  if (fs.exists(path)) content = parse_written_json(fs.read_file(path), path);
  return content.is_object() ? content : nlohmann::json::object();
}

// Whether the tokenizer puts BOS before a text, as far as its files say.
bool prepends_bos(const Tokenizer& tokenizer, const nlohmann::json& config) {
  return config.value("add_bos_token", nlohmann::json()) == true ||
         (tokenizer.subwords() != nullptr &&
          tokenizer.subwords()->parts().template_begins_with_bos);
}

// tokenizer_config.json names a token as text, or as an object with it.
std::string token_name(const nlohmann::json& config, const char* key) {
  nlohmann::json name = config.value(key, nlohmann::json());
  if (name.is_object()) name = name.value("content", nlohmann::json());
  return name.is_string() ? name.get<std::string>() : "";
}

// tokenizer.json does not name EOS and may not name BOS.
void warn_of_names(const Tokenizer& tokenizer, const nlohmann::json& config) {
  const auto compare = [&](const char* key, int64_t id) {
    const std::string named = token_name(config, key),
                      own = id < 0 ? "" : tokenizer.id_to_piece(id);
    if (!named.empty() && named != own)
      spdlog::warn("{}: {} says that {} is '{}'; here it is {}", tokenizer.path(), kTokenizerConfig,
                   key, named, own.empty() ? "none" : "'" + own + "'");
  };
  compare("bos_token", tokenizer.bos_id());
  compare("eos_token", tokenizer.eos_id());
}

struct FoundTokenizer {
  std::string path;  // "": none
  std::string note;  // what to know of it, in a line
};

FoundTokenizer tokenizer_to_copy(FileSystem& fs, const ImportOptions& options,
                                 const LlamaConfig& model) {
  if (options.tokenizer == ImportTokenizer::kLeave)
    return {"", "left out; generate needs --tokenizer"};
  const std::string path = tokenizer_in(options.directory);
  if (path.empty()) return {"", "none in the directory; generate needs --tokenizer"};
  const Tokenizer tokenizer = checked_tokenizer(path, model);
  const nlohmann::json config = tokenizer_config(fs, options.directory);
  if (tokenizer.subwords() != nullptr) warn_of_names(tokenizer, config);
  std::string note = tokenizer.file_name();
  if (prepends_bos(tokenizer, config))
    note += "; its texts begin with BOS: generate and export with --bos";
  return {path, note};
}

}  // namespace

ImportedModel import_model(FileSystem& fs, const ImportOptions& options) {
  check_weights_output(fs, options.output, options.overwrite);
  require_directory(fs, options.directory);
  const std::string path = in_directory(options.directory, kConfig);
  const HuggingFaceModel read =
      llama_config_of_hugging_face(fs.read_file(path, kMaxJsonBytes), path, options.ignored);
  const RunConfig base = base_config(read.model, context_of(read, options, path), path);
  FoundTokenizer tokenizer = tokenizer_to_copy(fs, options, read.model);
  ImportedModel imported{.config = {},
                         .changes = {},
                         .tokenizer = std::move(tokenizer.path),
                         .note = std::move(tokenizer.note)};
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  HuggingFaceWeights weights(fs, options.directory, read.model, *device);
  imported.config = config_of_weights(base, {.output = options.output,
                                             .weights = options.weights.value_or(weights.format()),
                                             .overrides = options.overrides});
  imported.changes = write_weights_checkpoint(fs,
                                              {.output = options.output,
                                               .overwrite = options.overwrite,
                                               .config = imported.config,
                                               .tokenizer = imported.tokenizer,
                                               .weights_of = {{"path", options.directory}}},
                                              weights, *device);
  return imported;
}

}  // namespace mpt
