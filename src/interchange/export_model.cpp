#include "interchange/export_model.h"

#include <array>
#include <string_view>
#include <vector>

#include <spdlog/spdlog.h>

#include "core/json/json_parse.h"
#include "interchange/export_gguf.h"
#include "interchange/exported_weights.h"
#include "interchange/hugging_face_config.h"
#include "precision/weight_formats.h"
#include "text/sentencepiece/to_tokenizer_json.h"
#include "text/subword/subword_tokenizer.h"
#include "text/tokenizer_files/tiktoken_reader.h"
#include "text/tokenizer_files/tokenizer_settings.h"

namespace mpt {
namespace {

using nlohmann::ordered_json;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kTokenizer = "tokenizer.model";
constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kTiktoken = "tokenizer.tiktoken";
constexpr const char* kTiktokenSettings = "tokenizer.tiktoken.json";
constexpr std::array<std::string_view, 9> kExportFiles{
    kModelConfigFile, kGenerationConfig, kWeights,  kTokenizer,       kTokenizerJson,
    kTokenizerConfig, kSpecialTokens,    kTiktoken, kTiktokenSettings};

const char* torch_name(WeightFormat masters) {
  return masters == WeightFormat::kF32 ? "float32" : "bfloat16";
}

ordered_json generation_config(const SpecialIds& ids) {
  ordered_json content{
      {"_from_model_config", true}, {"bos_token_id", ids.bos}, {"eos_token_id", ids.eos}};
  if (!ids.pad.is_null()) content["pad_token_id"] = ids.pad;
  return content;
}

// An export's tokenizer, with its special_pieces().
struct NamedTokenizer {
  const Tokenizer& tokenizer;
  SpecialIds ids;

  [[nodiscard]] ordered_json piece(const nlohmann::json& id) const {
    return id.is_null() ? ordered_json() : ordered_json(tokenizer.id_to_piece(id.get<int64_t>()));
  }
  [[nodiscard]] ordered_json unknown_piece() const {
    return tokenizer.unk_id() < 0 ? ordered_json() : piece(tokenizer.unk_id());
  }
};

ordered_json special_tokens(const NamedTokenizer& named) {
  ordered_json tokens = ordered_json::object();
  const auto add = [&](const char* key, const ordered_json& piece) {
    if (!piece.is_null()) tokens[key] = piece;
  };
  add("bos_token", named.piece(named.ids.bos));
  add("eos_token", named.piece(named.ids.eos));
  add("unk_token", named.unknown_piece());
  add("pad_token", named.piece(named.ids.pad));
  return tokens;
}

ordered_json rope_scaling(const RopeScaling& scaling) {
  ordered_json content{{"rope_type", name_of(scaling.rope_type)}, {"factor", scaling.factor}};
  if (scaling.rope_type != RopeType::kLlama3) return content;
  content["low_freq_factor"] = scaling.low_freq_factor;
  content["high_freq_factor"] = scaling.high_freq_factor;
  content["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  return content;
}

// Warns of models that the classes of transformers refuse to load although the weights are right.
void warn_of_refusals(const LlamaConfig& model, const SpecialIds& ids) {
  constexpr double kMostDeviation = 1;  // of LlamaConfig
  if (!model.qk_norm && model.hidden_size % model.num_attention_heads != 0)
    spdlog::warn(
        "model.hidden_size is {}, no multiple of the {} of model.num_attention_heads: "
        "LlamaForCausalLM of transformers refuses such a {}, whatever its head_dim",
        model.hidden_size, model.num_attention_heads, kModelConfigFile);
  if (!model.qk_norm && model.initializer_range > kMostDeviation)
    spdlog::warn(
        "model.initializer_range is {}: LlamaForCausalLM of transformers refuses more than {} in "
        "{}",
        model.initializer_range, kMostDeviation, kModelConfigFile);
  if (!ids.pad.is_null() &&
      (ids.pad < -model.vocab_size || ids.pad >= model.vocab_size))  // -1 is the last row
    spdlog::warn(
        "pad_token_id is {} in the source of the model, which has {} rows in its embedding: "
        "transformers refuses a {} with an id beyond them",
        json_text(ids.pad), model.vocab_size, kModelConfigFile);
}

// Codes times FP16 scales need more bits than BF16 has.
void add_quantization(ordered_json& config, const RunConfig& run) {
  const WeightEncoding encoding = linear_encoding(run.precision);
  if (encoding.format == WeightFormat::kBlockFp8 && encoding.fp8_scale_mode == Fp8ScaleMode::kFp16)
    config["torch_dtype"] = "float32";
  config["quantization_config"] = quantization_config(encoding);
}

enum class TokenizerJson : uint8_t { kWritten, kNone };

// PreTrainedTokenizerFast reads tokenizer.json unchanged, and `split_special_tokens` lets "</s>" in
// a text be text. LlamaTokenizer reads tokenizer.model; with `legacy`, SentencePiece splits the
// unmodified text, as in the training data.
ordered_json tokenizer_config(const NamedTokenizer& named, const RunConfig& config,
                              const ExportOptions& options, TokenizerJson json) {
  const bool written = json == TokenizerJson::kWritten;
  ordered_json content{{"tokenizer_class", written ? "PreTrainedTokenizerFast" : "LlamaTokenizer"},
                       {"add_bos_token", options.prepend_bos},
                       {"add_eos_token", false},
                       {"bos_token", named.piece(named.ids.bos)},
                       {"eos_token", named.piece(named.ids.eos)},
                       {"unk_token", named.unknown_piece()},
                       {"pad_token", named.piece(named.ids.pad)},
                       {"clean_up_tokenization_spaces", false},
                       {"legacy", true},
                       {"model_max_length", context_of_export(config, options)},
                       {"sp_model_kwargs", ordered_json::object()}};
  if (written) content["split_special_tokens"] = true;
  return content;
}

// --- directory -----------------------------------------------------------------------------------

void write_text(FileSystem& fs, const std::string& path, std::string_view text) {
  const auto file = fs.create(path);
  file->append(bytes_of(text));
  file->sync();
  file->close();
}

void write_json(FileSystem& fs, const std::string& path, const ordered_json& content) {
  write_text(fs, path, json_text(content, 2) + "\n");
}

// Writes tokenizer.json, unless it would give other ids than the tokenizer.
TokenizerJson write_tokenizer_json(FileSystem& fs, const std::string& path,
                                   const Tokenizer& tokenizer, const ExportOptions& options) {
  const SentencePieceModel model = parse_sentencepiece_model(tokenizer.model_bytes());
  if (const std::string reason = not_in_tokenizer_json(model); !reason.empty()) {
    spdlog::warn(
        "{}: cannot be expressed as tokenizer.json, which is not written: {}; use {} with the "
        "sentencepiece library",
        tokenizer.path(), reason, kTokenizer);
    return TokenizerJson::kNone;
  }
  write_json(fs, path, tokenizer_json(model, options.prepend_bos ? tokenizer.bos_id() : -1));
  return TokenizerJson::kWritten;
}

void write_sentencepiece(FileSystem& fs, const std::string& directory, const NamedTokenizer& named,
                         const RunConfig& config, const ExportOptions& options) {
  write_text(fs, in_directory(directory, kTokenizer), named.tokenizer.model_bytes());
  const TokenizerJson json =
      write_tokenizer_json(fs, in_directory(directory, kTokenizerJson), named.tokenizer, options);
  write_json(fs, in_directory(directory, kTokenizerConfig),
             tokenizer_config(named, config, options, json));
  write_json(fs, in_directory(directory, kSpecialTokens), special_tokens(named));
}

void warn_of_bos(const Tokenizer& tokenizer, const ExportOptions& options) {
  const bool begins = tokenizer.subwords()->parts().template_begins_with_bos;
  if (begins != options.prepend_bos)
    spdlog::warn("{}: its post_processor {} BOS before a text, the texts of the model's data {}",
                 tokenizer.path(), begins ? "puts" : "puts no",
                 options.prepend_bos ? "begin with it" : "do not begin with it");
}

// Writes tokenizer.json unchanged, with the files that PreTrainedTokenizerFast needs in addition.
void write_subwords(FileSystem& fs, const std::string& directory, const NamedTokenizer& named,
                    const RunConfig& config, const ExportOptions& options) {
  warn_of_bos(named.tokenizer, options);
  write_text(fs, in_directory(directory, kTokenizerJson), named.tokenizer.model_bytes());
  ordered_json content{{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {kTextsBeginWithBos, options.prepend_bos},
                       {"clean_up_tokenization_spaces", false},
                       {"model_max_length", context_of_export(config, options)}};
  content.update(special_tokens(named));
  write_json(fs, in_directory(directory, kTokenizerConfig), content);
  write_json(fs, in_directory(directory, kSpecialTokens), special_tokens(named));
}

void write_tiktoken(FileSystem& fs, const std::string& directory, const Tokenizer& tokenizer) {
  spdlog::warn("{}: transformers does not read tiktoken files; {} is for other programs",
               tokenizer.path(), kTiktoken);
  const TiktokenFiles files = tiktoken_files(tokenizer.model_bytes());
  write_text(fs, in_directory(directory, kTiktoken), files.ranks);
  write_text(fs, in_directory(directory, kTiktokenSettings), files.settings + "\n");
}

void write_tokenizer(FileSystem& fs, const std::string& directory, const NamedTokenizer& named,
                     const RunConfig& config, const ExportOptions& options) {
  switch (named.tokenizer.kind()) {
    case TokenizerKind::kSentencePiece:
      return write_sentencepiece(fs, directory, named, config, options);
    case TokenizerKind::kTokenizerJson:
      return write_subwords(fs, directory, named, config, options);
    case TokenizerKind::kTiktoken:
      return write_tiktoken(fs, directory, named.tokenizer);
  }
}

void write_files(FileSystem& fs, const std::string& directory, const LoadedModel& model,
                 const Tokenizer* tokenizer, const ExportOptions& options) {
  const bool codes = options.format == ExportFormat::kHfCodes;
  const std::vector<FileTensor> tensors =
      codes ? code_file(*model.weights, model.checkpoint) : decoded_file(*model.weights);
  const LlamaConfig& shape = model.config.model;
  const SpecialIds ids = special_ids(model.source, tokenizer, shape.vocab_size);
  warn_of_refusals(shape, ids);
  ordered_json config = hugging_face_config(model.config, ids, options);
  if (codes) add_quantization(config, model.config);
  write_json(fs, in_directory(directory, kModelConfigFile), config);
  write_json(fs, in_directory(directory, kGenerationConfig), generation_config(ids));
  write_weight_file(fs, in_directory(directory, kWeights), *model.device, tensors);
  if (tokenizer != nullptr)
    write_tokenizer(fs, directory,
                    {*tokenizer, special_pieces(model.source, *tokenizer, tokenizer->vocab_size())},
                    model.config, options);
}

nlohmann::json id_or_null(int64_t id) { return id < 0 ? nlohmann::json() : nlohmann::json(id); }

}  // namespace

SpecialIds special_ids(const SourceTexts& source, const Tokenizer* tokenizer, int64_t vocab_size) {
  SpecialIds ids = source.ids;
  for (nlohmann::json* const one : {&ids.bos, &ids.pad})
    if (one->is_array()) *one = id_or_null(SpecialIds::first(*one, vocab_size));
  if (tokenizer == nullptr) return ids;
  const auto complete = [](nlohmann::json& of, int64_t id) {
    if (of.is_null() && id >= 0) of = id;
  };
  complete(ids.bos, tokenizer->bos_id());
  complete(ids.eos, tokenizer->eos_id());
  complete(ids.pad, tokenizer->pad_id());
  return ids;
}

SpecialIds special_pieces(const SourceTexts& source, const Tokenizer& tokenizer, int64_t tokens) {
  const auto piece = [&](int64_t own, const nlohmann::json& named) {
    if (own >= 0) return id_or_null(own);
    const int64_t id = SpecialIds::first(named, tokenizer.vocab_size());
    return id_or_null(id >= 0 ? id : SpecialIds::first(named, tokens));
  };
  return {.bos = piece(tokenizer.bos_id(), source.ids.bos),
          .eos = piece(tokenizer.eos_id(), source.ids.eos),
          .pad = piece(tokenizer.pad_id(), source.ids.pad)};
}

int64_t context_of_export(const RunConfig& config, const ExportOptions& options) {
  return options.context.value_or(config.batch.seq_len);
}

ordered_json hugging_face_config(const RunConfig& config, const SpecialIds& ids,
                                 const ExportOptions& options) {
  const LlamaConfig& model = config.model;
  ordered_json content{{"architectures", {model.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
                       {"model_type", model.qk_norm ? "qwen3" : "llama"},
                       {"hidden_size", model.hidden_size},
                       {"intermediate_size", model.intermediate_size},
                       {"num_hidden_layers", model.num_hidden_layers},
                       {"num_attention_heads", model.num_attention_heads},
                       {"num_key_value_heads", model.key_value_heads()},
                       {"head_dim", model.head_dim()},
                       {"vocab_size", model.vocab_size},
                       {"max_position_embeddings", context_of_export(config, options)},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", model.rms_norm_eps},
                       {"rope_theta", model.rope_theta},
                       {"initializer_range", model.initializer_range},
                       {"tie_word_embeddings", model.tie_word_embeddings},
                       {"attention_bias", false},
                       {"torch_dtype", torch_name(config.precision.weights)},
                       {"bos_token_id", ids.bos},
                       {"eos_token_id", ids.eos},
                       {"pad_token_id", ids.pad},
                       {"use_cache", true}};
  content[model.qk_norm ? "use_sliding_window" : "mlp_bias"] = false;
  if (model.rope_scaling.rope_type != RopeType::kDefault)
    content["rope_scaling"] = rope_scaling(model.rope_scaling);
  return content;
}

ModelUse use_of_export(const ExportOptions& options) {
  if (options.format == ExportFormat::kGguf) return use_of_gguf(options.type);
  return options.format == ExportFormat::kHfCodes ? ModelUse::kExportCodes : ModelUse::kExport;
}

namespace {

OutputDirectory output_of(const ExportOptions& options) {
  return {.path = options.output,
          .what = "an export",
          .files = {kExportFiles.begin(), kExportFiles.end()},
          .overwrite = options.overwrite};
}

}  // namespace

void check_export_output(FileSystem& fs, const ExportOptions& options) {
  if (options.format == ExportFormat::kGguf) return check_gguf_output(fs, options);
  check_output(fs, output_of(options));
}

void export_model(FileSystem& fs, const LoadedModel& model, const Tokenizer* tokenizer,
                  const ExportOptions& options) {
  if (options.format == ExportFormat::kGguf) return export_gguf(fs, model, tokenizer, options);
  write_directory(fs, output_of(options), [&](const std::string& directory) {
    write_files(fs, directory, model, tokenizer, options);
  });
}

}  // namespace mpt
