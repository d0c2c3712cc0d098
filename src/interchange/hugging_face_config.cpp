#include "interchange/hugging_face_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/json/config_reader.h"
#include "core/json/json_parse.h"

namespace mpt {
namespace {

struct ModelType {
  std::string_view name, architecture;
};
constexpr std::array kModelTypes{ModelType{"llama", "LlamaForCausalLM"},
                                 ModelType{"qwen3", "Qwen3ForCausalLM"}};
constexpr std::string_view kQwen3 = kModelTypes[1].name;

// Keys with the same name in the model section.
constexpr auto kShared = std::to_array<std::string_view>(
    {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "num_key_value_heads", "head_dim", "vocab_size", "tie_word_embeddings", "rms_norm_eps",
     "initializer_range"});

// Keys that are read in their own functions.
constexpr auto kRead = std::to_array<std::string_view>(
    {"model_type", "architectures", "max_position_embeddings", "rope_theta", "rope_scaling",
     "rope_parameters", "bos_token_id", "eos_token_id", "pad_token_id"});

// Keys for which any other value would change the model's function.
struct OnlyValue {
  std::string_view key;
  std::string_view accepted;  // JSON
};
constexpr auto kOnly = std::to_array<OnlyValue>({{"hidden_act", "\"silu\""},
                                                 {"attention_bias", "false"},
                                                 {"mlp_bias", "false"},
                                                 {"attention_dropout", "0"},
                                                 {"rope_interleaved", "false"},
                                                 {"partial_rotary_factor", "1"},
                                                 {"is_encoder_decoder", "false"},
                                                 {"add_cross_attention", "false"}});
constexpr auto kOnlyOfQwen3 = std::to_array<OnlyValue>({{"use_sliding_window", "false"}});

// Keys that do not affect what the model computes. The types of weights are those of the files.
constexpr auto kHarmless = std::to_array<std::string_view>({"pretraining_tp",
                                                            "unk_token_id",
                                                            "sep_token_id",
                                                            "use_cache",
                                                            "transformers_version",
                                                            "torch_dtype",
                                                            "dtype",
                                                            "_name_or_path",
                                                            "_commit_hash",
                                                            "_attn_implementation_autoset",
                                                            "is_llama_config",
                                                            "is_decoder",
                                                            "tokenizer_class",
                                                            "transformers.js_config",
                                                            "output_attentions",
                                                            "output_hidden_states",
                                                            "return_dict",
                                                            "use_return_dict",
                                                            "task_specific_params",
                                                            "problem_type",
                                                            "id2label",
                                                            "label2id",
                                                            "chunk_size_feed_forward",
                                                            "tie_encoder_decoder"});
// The last two have no effect while use_sliding_window is false.
constexpr auto kHarmlessOfQwen3 =
    std::to_array<std::string_view>({"sliding_window", "max_window_layers"});

// Keys required by linear and llama3 scaling.
constexpr auto kOfLinear = std::to_array<std::string_view>({"factor"});
constexpr auto kOfLlama3 = std::to_array<std::string_view>(
    {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});

bool is_among(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

class ConfigTranslator {
 public:
  ConfigTranslator(Json root, const std::string& path, const std::vector<std::string>& ignored)
      : root_(std::move(root)), path_(path), ignored_(ignored) {}

  HuggingFaceModel run() {
    read_type();
    leave_ignored_keys();
    for (const auto& item : root_.items()) check_key(item.key(), item.value());
    read_architectures();
    read_layer_types();
    read_rope();
    if (is_qwen3()) require_explicit_heads();
    HuggingFaceModel result{
        .model = {}, .max_position_embeddings = read_context(), .ids = read_ids()};
    read_model(result.model);
    throw_problems(problems_);
    return result;
  }

 private:
  template <class... Args>
  void report(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(
        fmt::format("{}: {}: {}", path_, key, fmt::format(format, std::forward<Args>(args)...)));
  }
  // Returns null if the key is missing or null, for which transformers uses its default.
  [[nodiscard]] const Json* find(std::string_view key) const { return value_in(root_, key); }
  static const Json* value_in(const Json& object, std::string_view key) {
    const auto found = object.find(std::string(key));
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] bool is_qwen3() const { return type_->name == kQwen3; }

  // Without a known type, no other key has a meaning.
  void read_type() {
    const Json* type = find("model_type");
    for (const ModelType& known : kModelTypes)
      if (type != nullptr && *type == known.name) type_ = &known;
    if (type_ == nullptr)
      throw error("{}: model_type: expected {}, found {}", path_, type_names(),
                  type == nullptr ? "nothing" : describe(*type));
  }
  static std::string type_names() {
    std::string names;
    for (const ModelType& known : kModelTypes)
      names.append(names.empty() ? "" : " or ").append(known.name);
    return names;
  }

  // Also refuses to ignore a key that is read or missing.
  void leave_ignored_keys() {
    for (const std::string& key : ignored_) {
      if (!root_.contains(key))
        report(key, "--ignore names this key, which is not there");
      else if (is_known(key))
        report(key, "--ignore names this key, but it is understood; leave it out of --ignore");
      else
        root_.erase(key);
    }
  }

  [[nodiscard]] bool is_known(std::string_view key) const {
    return is_among(key, kShared) || is_among(key, kRead) || is_among(key, kHarmless) ||
           only_value_of(key) != nullptr ||
           (is_qwen3() && (is_among(key, kHarmlessOfQwen3) || key == "layer_types"));
  }
  [[nodiscard]] const OnlyValue* only_value_of(std::string_view key) const {
    const auto found = std::ranges::find(kOnly, key, &OnlyValue::key);
    if (found != kOnly.end()) return &*found;
    const auto of_qwen3 = std::ranges::find(kOnlyOfQwen3, key, &OnlyValue::key);
    return is_qwen3() && of_qwen3 != kOnlyOfQwen3.end() ? &*of_qwen3 : nullptr;
  }

  void check_key(const std::string& key, const Json& value) {
    if (key == "quantization_config") {
      if (!value.is_null()) report(key, "quantized weights are not read; import the original ones");
    } else if (!is_known(key)) {
      report(key,
             "unknown key; if it changes nothing of what the model computes, leave it out with "
             "--ignore {}",
             key);
    } else if (const OnlyValue* only = only_value_of(key);
               only != nullptr && !value.is_null() && value != Json::parse(only->accepted)) {
      report(key, "expected {}, the only value that models here have; found {}", only->accepted,
             describe(value));
    }
  }

  void read_architectures() {
    const Json* names = find("architectures");
    if (names != nullptr && *names != Json::array({type_->architecture}))
      report("architectures", "expected [\"{}\"] with model_type {}, found {}", type_->architecture,
             type_->name, describe(*names));
  }

  void read_layer_types() {
    const Json* types = is_qwen3() ? find("layer_types") : nullptr;
    if (types == nullptr) return;
    const auto is_full = [](const Json& type) { return type == "full_attention"; };
    if (!types->is_array() || !std::all_of(types->begin(), types->end(), is_full))
      report("layer_types", "expected a list of \"full_attention\", found {}", describe(*types));
  }

  // transformers has other defaults for them than for LLaMA.
  void require_explicit_heads() {
    for (const char* key : {"head_dim", "num_key_value_heads"})
      if (find(key) == nullptr) report(key, "missing; with model_type {} it is required", kQwen3);
  }

  // --- rotary frequencies ------------------------------------------------------------------------

  // transformers 5 has rope_theta and rope_scaling in one object, rope_parameters.
  void read_rope() {
    const Json* scaling = find("rope_scaling");
    const Json* parameters = find("rope_parameters");
    if (scaling != nullptr) model_["rope_scaling"] = scaling_of("rope_scaling", *scaling);
    if (const Json* theta = find("rope_theta")) model_["rope_theta"] = *theta;
    if (parameters == nullptr) return;
    Json both = scaling_of("rope_parameters", *parameters);
    if (const Json* theta = value_in(both, "rope_theta")) set_once("rope_theta", *theta);
    both.erase("rope_theta");
    set_once("rope_scaling", both);
  }
  void set_once(const char* key, const Json& value) {
    if (model_.contains(key) && model_[key] != value)
      report(key, "is {}, but rope_parameters says {}", describe(model_[key]), describe(value));
    model_[key] = value;
  }

  // Returns the section as configs here spell it; unknown parts are reported when it is read.
  Json scaling_of(std::string_view key, const Json& given) {
    if (!given.is_object()) {
      report(key, "expected an object or null, found {}", describe(given));
      return Json::object();
    }
    Json scaling = given;
    if (value_in(given, "partial_rotary_factor") != nullptr &&
        given.at("partial_rotary_factor") == 1)
      scaling.erase("partial_rotary_factor");
    scaling.erase("type");
    const Json* type = value_in(given, "rope_type");
    const Json* former = value_in(given, "type");
    if (type != nullptr && former != nullptr && *type != *former)
      report(key, "rope_type is {}, but type is {}", describe(*type), describe(*former));
    scaling["rope_type"] = type != nullptr ? *type : former != nullptr ? *former : Json("default");
    require_parts(key, scaling);
    return scaling;
  }
  void require_parts(std::string_view key, const Json& scaling) {
    std::span<const std::string_view> parts{};
    if (scaling["rope_type"] == "linear") parts = kOfLinear;
    if (scaling["rope_type"] == "llama3") parts = kOfLlama3;
    for (const std::string_view part : parts)
      if (value_in(scaling, part) == nullptr)
        report(key, "has no {}, which rope_type {} needs", part, describe(scaling["rope_type"]));
  }

  // --- results -----------------------------------------------------------------------------------

  std::optional<int64_t> read_context() {
    const Json* length = find("max_position_embeddings");
    if (length == nullptr) return std::nullopt;
    if (length->is_number_unsigned() && *length > 0 && *length <= int64_t{1} << 40)
      return length->get<int64_t>();
    report("max_position_embeddings", "expected a number of tokens, found {}", describe(*length));
    return std::nullopt;
  }

  SpecialIds read_ids() {
    SpecialIds ids;
    for (const auto& [key, member] : kSpecialIdKeys) {
      const Json* found = find(key);
      if (found == nullptr) continue;
      if (!are_token_ids(*found))
        report(key, "expected a number of a token, a list of them or null, found {}",
               describe(*found));
      ids.*member = *found;
    }
    return ids;
  }

  void read_model(LlamaConfig& model) {
    for (const std::string_view key : kShared)
      if (const Json* value = find(key)) model_[std::string(key)] = *value;
    model_["qk_norm"] = is_qwen3();
    read_fields(JsonDocument::of_value(model_, path_), Fields::of(model), problems_);
  }

  Json root_;
  const std::string& path_;
  const std::vector<std::string>& ignored_;
  const ModelType* type_ = nullptr;
  Json model_ = Json::object();  // the model section
  Problems problems_;
};

}  // namespace

SpecialIds with_generation_config(SpecialIds ids, std::string_view text, const std::string& path) {
  const nlohmann::json content = parse_plain_json(text, path);
  if (!content.is_object())
    throw error("{}: expected an object of keys, found {}", path, describe(content));
  for (const auto& [key, member] : kSpecialIdKeys) {
    const auto found = content.find(key);
    if (found == content.end() || found->is_null()) continue;
    if (!are_token_ids(*found))
      throw error(
          "{}: {}: expected a number of a token, a list of them or null, found {}; correct or "
          "remove "
          "the file",
          path, key, describe(*found));
    ids.*member = *found;
  }
  return ids;
}

HuggingFaceModel llama_config_of_hugging_face(std::string_view text, const std::string& path,
                                              const std::vector<std::string>& ignored) {
  ParsedJson parsed = parse_json(text, path);
  if (!parsed.value.is_object())
    throw error("{}: expected an object of keys, found {}", path, describe(parsed.value));
  return ConfigTranslator(std::move(parsed.value), path, ignored).run();
}

}  // namespace mpt
