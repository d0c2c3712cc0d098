// Exported directories: their contents, that they give the golden logits again, and that nothing is
// destroyed.
//
// The golden logits are those of transformers, within 7.2e-6 (tests/golden/README.md). If
// MPT_TRANSFORMERS_PYTHON names an interpreter that has transformers, it loads an export itself.
#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "core/io/directory_lock.h"
#include "interchange/export_model.h"
#include "model/closeness.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/model_checkpoint.h"
#include "support/run_program.h"
#include "support/temp_directory.h"
#include "weights/model_tokenizer.h"

namespace mpt::test {
namespace {

using nlohmann::json;

json json_file(const std::string& path) { return json::parse(posix_file_system().read_file(path)); }

struct Exported {
  TempDirectory directory{memory_directory()};
  std::string checkpoint = directory / "checkpoint", output = directory / "exported";

  explicit Exported(const CheckpointedModel& model) { write_model_checkpoint(checkpoint, model); }

  void run(const ExportOptions& options, FileSystem& fs = posix_file_system()) const {
    const LoadedModel model =
        load_model(posix_file_system(), checkpoint, kOneThread, ModelUse::kExport);
    const TokenizerFile file = find_tokenizer(model.config, "");
    if (file.path.empty()) return export_model(fs, model, nullptr, options);
    const Tokenizer tokenizer = load_tokenizer(model.config, file);
    export_model(fs, model, &tokenizer, options);
  }
  void run() const { run({.output = output}); }
};

void expect_weights(const std::string& path, const GoldenModel& golden, Format format) {
  const SafetensorsReader file(posix_file_system(), path);
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.tensors().size(), golden.weights.size());
  for (const ParamSpec& spec : llama_parameters(golden.config)) {
    const auto& entry = file.at(spec.name);
    EXPECT_EQ(entry.type, format == Format::kF32 ? StoredType::kF32 : StoredType::kBF16)
        << spec.name;
    EXPECT_EQ(entry.shape, spec.kind == ParamKind::kNorm ? std::vector{spec.cols}
                                                         : (std::vector{spec.rows, spec.cols}))
        << spec.name;
    std::vector<float> want = golden.weights.at(spec.name);
    if (format == Format::kBF16)
      for (float& x : want) x = to_float(bf16_nearest(x));
    EXPECT_EQ(file_values(file, entry.name), want) << spec.name;
  }
}

// The golden models have an intermediate size that is or is not a multiple of the padding.
TEST(Export, WeightsAreTheModelsWithoutPadding) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    for (const Format format : {Format::kF32, Format::kBF16}) {
      const Exported exported(golden_checkpoint(golden, format));
      exported.run();
      expect_weights(exported.output + "/model.safetensors", golden, format);
    }
  }
}

TEST(Export, ConfigIsWhatTransformersReads) {
  const GoldenModel golden = load_golden("llama_tiny");
  const Exported exported(golden_checkpoint(golden, Format::kBF16));
  exported.run();
  const json expected{{"architectures", {"LlamaForCausalLM"}},
                      {"model_type", "llama"},
                      {"hidden_size", 32},
                      {"intermediate_size", 40},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 4},
                      {"head_dim", 8},
                      {"vocab_size", 61},
                      {"max_position_embeddings", 13},
                      {"hidden_act", "silu"},
                      {"rms_norm_eps", golden.config.rms_norm_eps},
                      {"rope_theta", golden.config.rope_theta},
                      {"initializer_range", 0.02},
                      {"tie_word_embeddings", false},
                      {"attention_bias", false},
                      {"mlp_bias", false},
                      {"torch_dtype", "bfloat16"},
                      {"bos_token_id", nullptr},
                      {"eos_token_id", nullptr},
                      {"pad_token_id", nullptr},
                      {"use_cache", true}};
  EXPECT_EQ(json_file(exported.output + "/config.json"), expected);
  const Exported wide(golden_checkpoint(golden, Format::kF32));
  wide.run();
  EXPECT_EQ(json_file(wide.output + "/config.json").at("torch_dtype"), "float32");
  EXPECT_EQ(
      posix_file_system().list_directory(wide.output),
      (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors"}));
}

TEST(Export, ConfigNamesWhatDiffersFromLlama) {
  RunConfig config = CheckpointedModel{.model = small_config(30)}.config();
  const auto value = [&](const char* key) -> json {
    return hugging_face_config(config, {}, {}).value(key, nlohmann::ordered_json());
  };
  EXPECT_EQ(value("rope_scaling"), nullptr);
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;
  config.model.head_size = 6;
  config.model.tie_word_embeddings = true;
  EXPECT_EQ(value("num_key_value_heads"), 2);
  EXPECT_EQ(value("head_dim"), 6);
  EXPECT_EQ(value("tie_word_embeddings"), true);
  EXPECT_EQ(value("model_type"), "llama");
  config.model.rope_scaling = {.rope_type = RopeType::kLinear, .factor = 2};
  EXPECT_EQ(value("rope_scaling"), (json{{"rope_type", "linear"}, {"factor", 2.0}}));
  config.model.rope_scaling.rope_type = RopeType::kLlama3;
  EXPECT_EQ(value("rope_scaling"), (json{{"rope_type", "llama3"},
                                         {"factor", 2.0},
                                         {"low_freq_factor", 1.0},
                                         {"high_freq_factor", 4.0},
                                         {"original_max_position_embeddings", 8192}}));
  config.model.qk_norm = true;
  EXPECT_EQ(value("architectures"), json::array({"Qwen3ForCausalLM"}));
  EXPECT_EQ(value("model_type"), "qwen3");
  EXPECT_EQ(value("use_sliding_window"), false);
  EXPECT_EQ(value("mlp_bias"), nullptr);
}

// --- refusals of transformers --------------------------------------------------------------------

std::string log_of_export(const LlamaConfig& model) {
  const Exported exported({.model = model});
  const CapturedLog log;
  exported.run();
  EXPECT_TRUE(posix_file_system().exists(exported.output + "/model.safetensors"));
  return log.text();
}

TEST(Export, WhatTransformersRefusesIsTold) {
  LlamaConfig model = small_config(30);
  EXPECT_EQ(log_of_export(model), "");
  model.hidden_size = 17;
  model.head_size = 8;
  EXPECT_NE(log_of_export(model).find("model.hidden_size is 17"), std::string::npos);
  model.qk_norm = true;
  EXPECT_EQ(log_of_export(model), "");
  model = small_config(30);
  model.initializer_range = 1.5;
  EXPECT_NE(log_of_export(model).find("model.initializer_range is 1.5"), std::string::npos);
}

TEST(Export, APaddingTokenBeyondTheEmbeddingIsTold) {
  const Exported exported({.model = small_config(30)});
  LoadedModel model =
      load_model(posix_file_system(), exported.checkpoint, kOneThread, ModelUse::kExport);
  const auto log_with = [&](int64_t pad) {
    model.source.ids.pad = pad;
    const CapturedLog log;
    export_model(posix_file_system(), model, nullptr,
                 {.output = exported.output, .overwrite = Overwrite::kYes});
    return log.text();
  };
  EXPECT_EQ(log_with(29), "");
  EXPECT_EQ(log_with(-1), "");
  EXPECT_NE(log_with(30).find("pad_token_id is 30"), std::string::npos);
}

// Reads only the directory, like any other reader: config.json and model.safetensors.
std::vector<float> logits_of_export(const std::string& directory, const GoldenModel& golden) {
  LlamaConfig config = golden_config(posix_file_system().read_file(directory + "/config.json"));
  ModelBench bench(config, {.micro_batch = golden.batch, .keep = Keep::kNothing});
  const SafetensorsReader file(posix_file_system(), directory + "/model.safetensors");
  NamedValues weights;
  for (const auto& entry : file.tensors()) weights[entry.name] = file_values(file, entry.name);
  bench.set_weights(weights);
  return bench.llama().logits(golden.tokens);
}

TEST(Export, GivesTheGoldenLogits) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    const Exported exported(golden_checkpoint(golden, Format::kF32));
    exported.run();
    const std::vector<float> logits = logits_of_export(exported.output, golden);
    ASSERT_EQ(logits.size(), golden.logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], golden.logits[i], 1e-4) << name << " " << i;
  }
}

// --- tokenizer -----------------------------------------------------------------------------------

TEST(Export, TokenizerComesAlong) {
  const TempDirectory directory;
  const std::string tokenizer = train_small_tokenizer(directory.path());
  const Exported exported({.model = small_config(kSmallVocab), .tokenizer = tokenizer});
  exported.run({.output = exported.output, .prepend_bos = true});
  FileSystem& fs = posix_file_system();
  EXPECT_EQ(fs.list_directory(exported.output).size(), 7u);
  EXPECT_EQ(fs.read_file(exported.output + "/tokenizer.model"), fs.read_file(tokenizer));
  const json config = json_file(exported.output + "/config.json");
  EXPECT_EQ(config.at("bos_token_id"), 1);
  EXPECT_EQ(config.at("eos_token_id"), 2);
  const json generation = json_file(exported.output + "/generation_config.json");
  EXPECT_EQ(generation.at("eos_token_id"), 2);
  const json of_tokenizer = json_file(exported.output + "/tokenizer_config.json");
  EXPECT_EQ(of_tokenizer.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(of_tokenizer.at("split_special_tokens"), true);
  EXPECT_EQ(of_tokenizer.at("add_bos_token"), true);
  EXPECT_EQ(of_tokenizer.at("eos_token"), "</s>");
  EXPECT_EQ(json_file(exported.output + "/special_tokens_map.json"),
            (json{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}));
  const json pieces = json_file(exported.output + "/tokenizer.json");
  EXPECT_EQ(pieces.at("model").at("vocab").size(), size_t(kSmallVocab));
  EXPECT_EQ(pieces.at("post_processor").at("special_tokens").at("<s>").at("ids").at(0), 1);
  EXPECT_EQ(pieces.at("added_tokens"), json::array());
}

TEST(Export, ATokenizerThatJsonCannotExpressIsNamed) {
  const std::string unigram = MPT_SOURCE_DIR "/tests/golden/tokenizers/unigram.model";
  const Exported exported({.model = small_config(400), .tokenizer = unigram});
  const CapturedLog log;
  exported.run();
  EXPECT_TRUE(log.has(unigram) && log.has("tokenizer.json, which is not written") &&
              log.has("unigram"))
      << log.text();
  FileSystem& fs = posix_file_system();
  EXPECT_FALSE(fs.exists(exported.output + "/tokenizer.json"));
  EXPECT_EQ(fs.read_file(exported.output + "/tokenizer.model"), fs.read_file(unigram));
  const json config = json_file(exported.output + "/tokenizer_config.json");
  EXPECT_EQ(config.at("tokenizer_class"), "LlamaTokenizer");
  EXPECT_FALSE(config.contains("split_special_tokens"));
}

// --- existing outputs ----------------------------------------------------------------------------

class ExportOverwriting : public testing::Test {
 protected:
  Exported exported_{CheckpointedModel{.model = small_config(30)}};
  FileSystem& fs_ = posix_file_system();
  void put(const std::string& name) {
    fs_.create_directories(exported_.output);
    write_file_atomically(fs_, exported_.output + "/" + name, bytes_of("mine"));
  }
  void overwrite() { exported_.run({.output = exported_.output, .overwrite = Overwrite::kYes}); }
  [[nodiscard]] std::vector<std::string> around() const {
    return fs_.list_directory(exported_.directory.path());
  }
};

TEST_F(ExportOverwriting, AnEmptyDirectoryIsFilled) {
  fs_.create_directories(exported_.output);
  exported_.run({.output = exported_.output + "/"});
  EXPECT_TRUE(fs_.exists(exported_.output + "/model.safetensors"));
  EXPECT_EQ(around(), (std::vector<std::string>{"checkpoint", "exported"}));
}

TEST_F(ExportOverwriting, AnEarlierExportIsReplacedOnlyWhenAsked) {
  put("config.json");
  EXPECT_ERROR(exported_.run(), "is not empty", "--overwrite");
  EXPECT_EQ(fs_.read_file(exported_.output + "/config.json"), "mine");
  overwrite();
  EXPECT_TRUE(fs_.exists(exported_.output + "/model.safetensors"));
  EXPECT_EQ(around(), (std::vector<std::string>{"checkpoint", "exported"}));
}

TEST_F(ExportOverwriting, OtherFilesAreNeverRemoved) {
  put("config.json");
  put("thesis.tex");
  EXPECT_ERROR(overwrite(), "thesis.tex", "choose another directory");
  EXPECT_EQ(fs_.read_file(exported_.output + "/thesis.tex"), "mine");
  write_file_atomically(fs_, exported_.directory / "file", bytes_of("mine"));
  EXPECT_ERROR(
      exported_.run({.output = exported_.directory / "file", .overwrite = Overwrite::kYes}),
      "not a directory");
  EXPECT_ERROR(exported_.run({.output = ""}), "no output directory");
}

TEST_F(ExportOverwriting, LeftoversOfACrashAreCleared) {
  fs_.create_directories(exported_.output + ".tmp");
  write_file_atomically(fs_, exported_.output + ".tmp/config.json", bytes_of("torn"));
  exported_.run();
  EXPECT_EQ(around(), (std::vector<std::string>{"checkpoint", "exported"}));
}

// Returns the files of a directory.
std::map<std::string, std::string> contents_of(const std::string& directory) {
  FileSystem& fs = posix_file_system();
  std::map<std::string, std::string> contents;
  for (const std::string& name : fs.list_directory(directory))
    if (name != kLockFile && !fs.is_directory(in_directory(directory, name)))
      contents[name] = fs.read_file(in_directory(directory, name));
  return contents;
}

class ExportOverOther : public ExportOverwriting {
 protected:
  ExportOverOther() {
    other_.run({.output = exported_.output});
    earlier_ = contents_of(exported_.output);
    exported_.run({.output = exported_.directory / "new"});
    newer_ = contents_of(exported_.directory / "new");
    fs_.remove_tree(exported_.directory / "new");
  }
  void restore_earlier() {
    fs_.remove_tree(exported_.output);
    other_.run({.output = exported_.output});
  }
  // Returns whether the chosen operation was reached.
  bool fail_at(int64_t n, Fault fault) {
    FaultFileSystem faulty(fs_);
    faulty.fail_at(n, fault);
    try {
      exported_.run({.output = exported_.output, .overwrite = Overwrite::kYes}, faulty);
    } catch (const Error&) {
    }
    return faulty.broke();
  }

  // Returns whether a complete export exists, in place or about to be moved.
  [[nodiscard]] bool one_is_whole() const {
    for (const char* place : {"", "/.new", "/.replaced"})
      if (const std::string directory = exported_.output + place; fs_.is_directory(directory))
        if (const auto found = contents_of(directory); found == earlier_ || found == newer_)
          return true;
    return false;
  }

  Exported other_{{.model = small_config(30), .weights = random_weights(small_config(30))}};
  std::map<std::string, std::string> earlier_, newer_;
};

// After a failure at any operation, the earlier or the new export is complete; a second attempt
// works.
TEST_F(ExportOverOther, AFailureLeavesAWholeExport) {
  ASSERT_NE(earlier_.at("model.safetensors"), newer_.at("model.safetensors"));
  for (const Fault fault : {Fault::kError, Fault::kShortWrite}) {
    int64_t kept = 0, replaced = 0;
    bool broke = true;
    for (int64_t n = 1; broke; ++n) {
      restore_earlier();
      broke = fail_at(n, fault);
      ASSERT_LT(n, 1000);
      const auto left = contents_of(exported_.output);
      ASSERT_TRUE(left == earlier_ || left == newer_) << n;
      ++(left == earlier_ ? kept : replaced);
    }
    EXPECT_GT(kept, 0);
    EXPECT_GT(replaced, 0);
  }
  overwrite();
  EXPECT_EQ(around(), (std::vector<std::string>{"checkpoint", "exported"}));
}

// After a kill at any operation, an export is complete as well, possibly next to its place; the
// next attempt moves it into place, even one that fails.
TEST_F(ExportOverOther, AKillLeavesAWholeExport) {
  int64_t out_of_place = 0;
  bool broke = true;
  for (int64_t n = 1; broke; ++n) {
    restore_earlier();
    broke = fail_at(n, n % 2 == 0 ? Fault::kStop : Fault::kStopShort);
    ASSERT_LT(n, 1000);
    ASSERT_TRUE(one_is_whole()) << n;
    const auto in_place = [&] {
      const auto found = contents_of(exported_.output);
      return found == earlier_ || found == newer_;
    };
    if (!in_place()) ++out_of_place;
    fail_at(30, Fault::kError);
    ASSERT_TRUE(in_place()) << n;
    overwrite();
    ASSERT_TRUE(contents_of(exported_.output) == newer_) << n;
    ASSERT_EQ(around(), (std::vector<std::string>{"checkpoint", "exported"})) << n;
  }
  EXPECT_GT(out_of_place, 0);
}

// --- transformers --------------------------------------------------------------------------------

// Writes tokens and logits of a golden model, in the file that make_export_golden.py --check takes.
void write_logits(const std::string& path, const GoldenModel& golden,
                  const std::vector<float>& logits) {
  const auto [rows, seq_len] = golden.batch;
  SafetensorsWriter writer(
      posix_file_system(), path,
      {{"tokens", StoredType::kI32, {rows, seq_len}},
       {"logits", StoredType::kF32, {rows * seq_len, golden.config.vocab_size}}});
  writer.append(std::as_bytes(std::span(golden.tokens)));
  writer.append(std::as_bytes(std::span(logits)));
  writer.finish();
}

const char* transformers_python() { return std::getenv("MPT_TRANSFORMERS_PYTHON"); }

TEST(Export, TransformersTokenizesAsSentencePiece) {
  if (transformers_python() == nullptr)
    GTEST_SKIP() << "MPT_TRANSFORMERS_PYTHON names no interpreter with transformers";
  for (const char* name : {"bpe", "bpe_unknown", "bpe_squeezed", "bpe_bare"})
    for (const bool bos : {false, true}) {
      const std::string model =
          fmt::format("{}/tests/golden/tokenizers/{}.model", MPT_SOURCE_DIR, name);
      const Exported exported({.model = small_config(480), .tokenizer = model});
      exported.run({.output = exported.output, .prepend_bos = bos});
      const ProgramResult result =
          run_program({"-B", MPT_SOURCE_DIR "/tests/golden/make_tokenizer_golden.py", "--check",
                       exported.output},
                      {.timeout_s = 300, .program = transformers_python()});
      EXPECT_EQ(result.exit_code, 0) << name << result.out << result.err;
    }
}

TEST(Export, TransformersAgrees) {
  if (transformers_python() == nullptr)
    GTEST_SKIP() << "MPT_TRANSFORMERS_PYTHON names no interpreter with transformers";
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    const Exported exported(golden_checkpoint(golden, Format::kF32));
    exported.run();
    const std::string logits = exported.directory / "logits.safetensors";
    write_logits(logits, golden, logits_of_export(exported.output, golden));
    const auto check_export = [&] {
      return run_program({"-B", MPT_SOURCE_DIR "/tests/golden/make_export_golden.py",
                          exported.output, "--check", logits},
                         {.timeout_s = 300,
                          .env = {{"PYTHONPATH", MPT_SOURCE_DIR "/scripts"}},
                          .program = transformers_python()});
    };
    const ProgramResult agrees = check_export();
    EXPECT_EQ(agrees.exit_code, 0) << agrees.out << agrees.err;
    std::vector<float> wrong = logits_of_export(exported.output, golden);
    wrong.back() += 0.01f;
    write_logits(logits, golden, wrong);
    EXPECT_EQ(check_export().exit_code, 1) << "a difference must be seen";
  }
}

}  // namespace
}  // namespace mpt::test
