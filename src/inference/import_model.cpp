#include "inference/import_model.h"

#include "config/run_inputs.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "data/tokenizer.h"
#include "inference/hugging_face_config.h"
#include "inference/hugging_face_weights.h"
#include "inference/weights_checkpoint.h"

namespace mpt {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kSentencePiece = "tokenizer.model";
constexpr const char* kTokenizerJson = "tokenizer.json";
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

// Throws Error unless it is a SentencePiece model that the vocabulary has room for.
void check_tokenizer(const std::string& path, const LlamaConfig& model) {
  constexpr const char* kLeave = "leave it out with --no-tokenizer";
  int64_t pieces = 0;
  try {
    pieces = Tokenizer::load(path).vocab_size();
  } catch (const Error& defect) {
    throw error("{}; {}", defect.what(), kLeave);
  }
  if (pieces > model.vocab_size)
    throw error("{}: has {} pieces, but the vocabulary of the model is {}; {}", path, pieces,
                model.vocab_size, kLeave);
}

// Whether the tokenizer puts BOS before a text, as far as its config says.
bool prepends_bos(FileSystem& fs, const std::string& directory) {
  const std::string path = in_directory(directory, kTokenizerConfig);
  if (!fs.exists(path)) return false;
  const nlohmann::json content = parse_written_json(fs.read_file(path), path);
  return content.is_object() && content.value("add_bos_token", nlohmann::json()) == true;
}

std::string note_of(FileSystem& fs, const ImportOptions& options, const std::string& copied) {
  if (options.tokenizer == ImportTokenizer::kLeave) return "left out; generate needs --tokenizer";
  if (!copied.empty())
    return prepends_bos(fs, options.directory)
               ? "tokenizer.model; its texts begin with BOS: generate and export with --bos"
               : "tokenizer.model";
  return fs.exists(in_directory(options.directory, kTokenizerJson))
             ? "none: tokenizer.json is not read, generate and export need --tokenizer with a "
               "SentencePiece model"
             : "none in the directory; generate needs --tokenizer";
}

std::string tokenizer_to_copy(FileSystem& fs, const ImportOptions& options,
                              const LlamaConfig& model) {
  std::string path = in_directory(options.directory, kSentencePiece);
  if (options.tokenizer == ImportTokenizer::kLeave || !fs.exists(path)) return "";
  check_tokenizer(path, model);
  return path;
}

}  // namespace

ImportedModel import_model(FileSystem& fs, const ImportOptions& options) {
  check_weights_output(fs, options.output, options.overwrite);
  require_directory(fs, options.directory);
  const std::string path = in_directory(options.directory, kConfig);
  const HuggingFaceModel read =
      llama_config_of_hugging_face(fs.read_file(path, kMaxJsonBytes), path, options.ignored);
  const RunConfig base = base_config(read.model, context_of(read, options, path), path);
  ImportedModel imported{.config = {},
                         .changes = {},
                         .tokenizer = tokenizer_to_copy(fs, options, read.model),
                         .note = {}};
  imported.note = note_of(fs, options, imported.tokenizer);
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
