// Import: models saved by transformers give transformers' logits, nothing of their weights is lost,
// and anything that does not fit is refused by name.
//
// tests/golden/import/ is made by make_import_golden.py.
#include <filesystem>

#include <gtest/gtest.h>

#include "evaluation/evaluate.h"
#include "interchange/export_model.h"
#include "interchange/hugging_face_config.h"
#include "interchange/hugging_face_weights.h"
#include "interchange/import_model.h"
#include "model/closeness.h"
#include "support/captured_log.h"
#include "support/draws.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/model_checkpoint.h"
#include "support/temp_directory.h"
#include "weights/convert.h"
#include "weights/loaded_model.h"
#include "weights/model_tokenizer.h"

namespace mpt::test {
namespace {

using nlohmann::json;

std::string golden_model(const std::string& name) {
  return std::string(MPT_SOURCE_DIR "/tests/golden/import/") + name;
}

const std::vector<std::string> kAllCases{"plain",        "fp16",        "sharded", "grouped",
                                         "one_key_head", "wide_heads",  "tied",    "rope_linear",
                                         "rope_llama3",  "heads_normed"};

// On the CPU in the model's storage type.
Llama llama_of(const LoadedModel& model, BatchShape shape, AttentionScope attention) {
  return {model.config.model,
          {.micro_batch = shape,
           .storage = model.storage(),
           .loss_chunk_rows = default_loss_chunk_rows(model.config.model, shape, Backend::kCpu),
           .keep = Keep::kNothing,
           .attention = attention},
          *model.weights,
          *model.device,
          *model.allocator};
}

std::vector<float> logits_of(const LoadedModel& model, const std::vector<int32_t>& tokens,
                             BatchShape shape) {
  Llama llama = llama_of(model, shape, AttentionScope::kRow);
  llama.update_casts();
  return llama.logits(tokens);
}

// --- logits --------------------------------------------------------------------------------------

class ImportedLogits : public testing::TestWithParam<std::string> {};

// Weights are widened to FP32, exactly, and used in FP32 arithmetic. transformers' own float32
// logits differ from float64 by 7e-6 in models of this size (tests/golden/README.md); a feature
// that is missing or different changes them by 1e-2 and more.
TEST_P(ImportedLogits, AreThoseOfTransformers) {
  const TempDirectory directory;
  const std::string source = golden_model(GetParam()), output = directory / "imported";
  const ImportedModel imported =
      import_model(disk, {.directory = source, .output = output, .weights = WeightFormat::kF32});
  EXPECT_EQ(imported.changes.changed, 0);
  const SafetensorsReader golden(disk, source + "/logits.safetensors");
  const auto& entry = golden.at("tokens");
  const BatchShape shape{.rows = entry.shape.at(0), .seq_len = entry.shape.at(1)};
  const LoadedModel model = load_model(disk, output, kOneThread);
  EXPECT_EQ(model.step, 0);
  const std::vector<float> want = stored_values<float>(golden, golden.at("logits")),
                           found = logits_of(model, stored_values<int32_t>(golden, entry), shape);
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(found[i], want[i], 5e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, ImportedLogits, testing::ValuesIn(kAllCases),
                         [](const auto& instance) { return instance.param; });

// A row of several documents: transformers with a 4-D mask and positions that restart.
class DocumentLogits : public testing::TestWithParam<std::string> {};

TEST_P(DocumentLogits, AreThoseOfTransformers) {
  const TempDirectory directory;
  const std::string source = golden_model(GetParam()), output = directory / "imported";
  import_model(disk, {.directory = source, .output = output, .weights = WeightFormat::kF32});
  const SafetensorsReader golden(disk, source + "/documents.safetensors");
  const auto ids = [&](const char* name) {
    return stored_values<int32_t>(golden, golden.at(name));
  };
  const std::vector<int32_t> tokens = ids("tokens"), begins = ids("document_begin");
  const LoadedModel model = load_model(disk, output, kOneThread);
  Llama llama = llama_of(model, {1, std::ssize(tokens)}, AttentionScope::kDocument);
  llama.update_casts();
  const std::vector<float> want = stored_values<float>(golden, golden.at("logits")),
                           found = llama.logits(tokens, begins);
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(found[i], want[i], 5e-5) << i;
  const double loss = std::stod(golden.metadata().at("loss"));
  EXPECT_NEAR(llama.evaluate({tokens, ids("targets"), begins}), loss, 1e-6 * loss);
}

INSTANTIATE_TEST_SUITE_P(Models, DocumentLogits,
                         testing::Values("plain", "grouped", "rope_llama3", "heads_normed"),
                         [](const auto& instance) { return std::string(instance.param); });

// --- bytes ---------------------------------------------------------------------------------------

void export_to(const std::string& checkpoint, const std::string& output) {
  const LoadedModel model = load_model(disk, checkpoint, kOneThread, ModelUse::kExport);
  export_model(disk, model, nullptr, {.output = output});
}

// Returns name, type, shape and bytes of every tensor of a directory.
std::map<std::string, std::string> tensors_of(const std::string& directory) {
  std::map<std::string, std::string> all;
  for (const std::string& name : disk.list_directory(directory)) {
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const SafetensorsReader file(disk, directory + "/" + name);
    for (const auto& entry : file.tensors()) {
      const std::vector<std::byte> bytes = file.read(entry);
      all[entry.name] = entry.description() +
                        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return all;
}

LlamaConfig config_in(const std::string& directory) {
  const std::string path = directory + "/config.json";
  LlamaConfig model = llama_config_of_hugging_face(disk.read_file(path), path).model;
  model.num_key_value_heads = model.key_value_heads();
  model.head_size = model.head_dim();
  return model;
}

class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, ReturnsEveryByte) {
  const TempDirectory directory;
  const std::string source = golden_model(GetParam());
  const ImportedModel imported =
      import_model(disk, {.directory = source, .output = directory / "imported"});
  EXPECT_EQ(imported.changes.text(), "all kept exactly");
  export_to(directory / "imported", directory / "exported");
  EXPECT_EQ(config_in(directory / "exported"), config_in(source));
  if (GetParam() == "fp16") return;  // becomes FP32
  EXPECT_TRUE(tensors_of(directory / "exported") == tensors_of(source));
}

INSTANTIATE_TEST_SUITE_P(Models, RoundTrip, testing::ValuesIn(kAllCases),
                         [](const auto& instance) { return instance.param; });

TEST(Import, Fp16BecomesFp32Exactly) {
  const TempDirectory directory;
  const std::string source = golden_model("fp16");
  EXPECT_EQ(import_model(disk, {.directory = source, .output = directory / "imported"})
                .config.precision.weights,
            WeightFormat::kF32);
  export_to(directory / "imported", directory / "exported");
  const SafetensorsReader before(disk, source + "/model.safetensors"),
      after(disk, directory / "exported/model.safetensors");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& entry : before.tensors()) {
    ASSERT_EQ(entry.type, StoredType::kF16);
    const auto codes = stored_values<uint16_t>(before, entry);
    const auto values = stored_values<float>(after, after.at(entry.name));
    ASSERT_EQ(codes.size(), values.size());
    for (size_t i = 0; i < codes.size(); ++i)
      ASSERT_EQ(values[i], float(std::bit_cast<_Float16>(codes[i]))) << entry.name << " " << i;
  }
}

// --- a directory to break ------------------------------------------------------------------------

// A directory of zeros, written by hand: 16 hidden, one layer, two heads.
class HandMade : public testing::Test {
 protected:
  HandMade() {
    config_ = {.hidden_size = 16,
               .intermediate_size = 20,
               .num_hidden_layers = 1,
               .num_attention_heads = 2,
               .vocab_size = 30};
    for (const ParamSpec& spec : llama_parameters(config_))
      tensors_.push_back(
          {spec.name, StoredType::kBF16,
           spec.rank() == 1 ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols}});
    keys_ = json(hugging_face_config(run_config(), {}, {}));
  }
  [[nodiscard]] RunConfig run_config() const {
    RunConfig config;
    config.model = config_;
    config.batch.seq_len = 8;
    return config;
  }
  StoredTensorInfo& tensor(const std::string& name) {
    return *std::ranges::find(tensors_, name, &StoredTensorInfo::name);
  }
  void write_file(const std::string& name, const std::vector<StoredTensorInfo>& tensors) const {
    SafetensorsWriter writer(disk, source_ + "/" + name, tensors);
    for (const StoredTensorInfo& info : tensors)
      writer.append(std::vector<std::byte>(size_t(info.bytes()), fill_));
    writer.finish();
  }
  void write_text(const std::string& name, const std::string& text) const {
    write_file_atomically(disk, source_ + "/" + name, bytes_of(text));
  }
  void write() const {
    write_text("config.json", keys_.dump());
    write_file("model.safetensors", tensors_);
  }
  ImportedModel import(ImportOptions options = {}, FileSystem& files = disk) const {
    options.directory = source_;
    options.output = output_;
    return import_model(files, options);
  }

  TempDirectory directory_;
  std::string source_ = [this] {
    disk.create_directories(directory_ / "source");
    return directory_ / "source";
  }();
  std::string output_ = directory_ / "imported";
  LlamaConfig config_;
  json keys_;
  std::vector<StoredTensorInfo> tensors_;
  std::byte fill_{};
};

TEST_F(HandMade, EveryTensorThatDoesNotFitIsNamed) {
  tensor("model.norm.weight").shape = {15};
  tensor("lm_head.weight").type = StoredType::kI32;
  tensor("model.layers.0.mlp.up_proj.weight").name = "model.layers.0.mlp.upward.weight";
  write();
  EXPECT_ERROR(import(), "tensor 'model.norm.weight' is BF16 [15]; expected BF16 [16]",
               "tensor 'lm_head.weight' is I32 [30, 16]",
               "has no tensor 'model.layers.0.mlp.up_proj.weight'; expected BF16 [20, 16]",
               "tensor 'model.layers.0.mlp.upward.weight' (BF16 [20, 16]) is none of the model");
  EXPECT_FALSE(disk.exists(output_));
}

TEST_F(HandMade, ALayerTooManyIsRefused) {
  tensors_.push_back({"model.layers.1.mlp.up_proj.weight", StoredType::kBF16, {20, 16}});
  write();
  EXPECT_ERROR(import(), "model.layers.1.mlp.up_proj.weight", "is none of the model");
}

TEST_F(HandMade, RotaryFrequenciesAreLeftOut) {
  tensors_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", StoredType::kF32, {4}});
  write();
  import();
  config_.num_key_value_heads = 2;  // as in config.json
  config_.head_size = 8;
  EXPECT_EQ(load_model(disk, output_, kOneThread).config.model, config_);
}

TEST_F(HandMade, OneWideTensorMakesAllWide) {
  tensor("model.norm.weight").type = StoredType::kF32;
  write();
  EXPECT_EQ(import().config.precision.weights, WeightFormat::kF32);
}

TEST_F(HandMade, WeightsThatAreNotFiniteAreRefused) {
  fill_ = std::byte{0xFF};
  write();
  EXPECT_ERROR(import(), "tensor 'model.embed_tokens.weight' is", "nan in row 0",
               "expected finite weights");
  EXPECT_FALSE(disk.exists(output_));
}

TEST_F(HandMade, ATiedHeadMustBeTheEmbedding) {
  config_.tie_word_embeddings = true;
  keys_ = json(hugging_face_config(run_config(), {}, {}));
  write();
  import();  // all zeros: equal
  EXPECT_TRUE(load_model(disk, output_, kOneThread).config.model.tie_word_embeddings);
  disk.remove_tree(output_);
  std::string bytes = disk.read_file(source_ + "/model.safetensors");
  const SafetensorsReader file(disk, source_ + "/model.safetensors");
  bytes[size_t(file.at("lm_head.weight").begin) + 2 * 16 * 3 + 1] = '\x40';
  write_text("model.safetensors", bytes);
  EXPECT_ERROR(import(), "'lm_head.weight' differs from 'model.embed_tokens.weight' in row 3",
               "tie_word_embeddings");
}

TEST_F(HandMade, DirectoriesWithoutAModelAreRefused) {
  EXPECT_ERROR(import(), "has no config.json; expected the directory of a Hugging Face model");
  write_text("config.json", keys_.dump());
  EXPECT_ERROR(import(), "has neither model.safetensors nor model.safetensors.index.json");
  write_text("pytorch_model.bin", "pickle");
  EXPECT_ERROR(import(), "pytorch_model.bin", "Convert them to safetensors");
  EXPECT_ERROR(import_model(disk, {.directory = directory_ / "missing", .output = output_}),
               "missing: no such directory");
  EXPECT_ERROR(import_model(disk, {.directory = source_ + "/config.json", .output = output_}),
               "not a directory");
}

TEST_F(HandMade, ShapesThatDoNotGoTogetherAreRefused) {
  write();
  keys_["num_key_value_heads"] = 3;
  write_text("config.json", keys_.dump());
  EXPECT_ERROR(import(), "source/config.json", "model.num_key_value_heads: 3 does not divide");
  keys_["num_key_value_heads"] = 2;
  keys_["head_dim"] = 7;
  write_text("config.json", keys_.dump());
  EXPECT_ERROR(import(), "model.head_dim", "must be even");
}

TEST_F(HandMade, SizesAreComparedBeforeMemoryIsTaken) {
  keys_.update({{"hidden_size", 1 << 16}, {"vocab_size", 1 << 24}, {"num_attention_heads", 2048}});
  write();
  EXPECT_ERROR(import(), "model.embed_tokens.weight", "[16777216, 65536]");
}

TEST_F(HandMade, ContextIsThatOfTheModelOrAsAsked) {
  write();
  EXPECT_EQ(import().config.batch.seq_len, 8);
  EXPECT_EQ(import({.overwrite = Overwrite::kYes, .seq_len = 5}).config.batch.seq_len, 5);
  keys_.erase("max_position_embeddings");
  write();
  EXPECT_ERROR(import({.overwrite = Overwrite::kYes}), "max_position_embeddings: missing",
               "--seq-len");
}

TEST_F(HandMade, NothingIsOverwrittenUnlessAsked) {
  write();
  import();
  EXPECT_ERROR(import(), "is not empty", "--overwrite");
  EXPECT_NO_THROW(import({.overwrite = Overwrite::kYes}));
  write_file_atomically(disk, output_ + "/metrics.jsonl", bytes_of("{}"));
  EXPECT_ERROR(import({.overwrite = Overwrite::kYes}), "metrics.jsonl", "choose another directory");
}

// A run made from config.json trains as configured, or not at all.
TEST_F(HandMade, ItsConfigSaysNotHowToTrain) {
  write();
  import();
  const std::string config = output_ + "/config.json";
  EXPECT_ERROR(load_run_config(config, {"name=run", "train.steps=1"}), "optimizer.rule");
  EXPECT_ERROR(load_run_config(config, {"name=run", "train.steps=1", "optimizer.rule=adamw"}),
               "optimizer.lr_additive");
  const RunConfig told = load_run_config(
      config, {"name=run", "train.steps=1", "optimizer.rule=adamw", "optimizer.lr_additive=1e-3"});
  EXPECT_EQ(told.model, load_model(disk, output_, kOneThread).config.model);
  EXPECT_EQ(told.batch.tokens_per_step, BatchConfig{}.tokens_per_step);
}

// After a failure at any operation, the output is complete or absent.
TEST_F(HandMade, AFailureLeavesNoHalfOfACheckpoint) {
  write();
  bool broke = true;
  for (int64_t n = 1; broke; ++n) {
    FaultFileSystem faulty(disk);
    faulty.fail_at(n, Fault::kError);
    try {
      import({.overwrite = Overwrite::kYes}, faulty);
    } catch (const Error&) {
    }
    broke = faulty.broke();
    ASSERT_LT(n, 1000);
    if (disk.exists(output_)) {
      ASSERT_NO_THROW(load_model(disk, output_, kOneThread)) << n;
    }
  }
  EXPECT_TRUE(disk.exists(output_));
}

// --- shards --------------------------------------------------------------------------------------

class Sharded : public HandMade {
 protected:
  Sharded() {
    const std::vector<StoredTensorInfo> first(tensors_.begin(), tensors_.begin() + 3),
        second(tensors_.begin() + 3, tensors_.end());
    write_text("config.json", keys_.dump());
    write_file("a.safetensors", first);
    write_file("b.safetensors", second);
    for (const StoredTensorInfo& info : first) map_[info.name] = "a.safetensors";
    for (const StoredTensorInfo& info : second) map_[info.name] = "b.safetensors";
  }
  void write_index() const {
    write_text("model.safetensors.index.json", json{{"weight_map", map_}}.dump());
  }
  json map_;
};

TEST_F(Sharded, AllShardsAreRead) {
  write_index();
  EXPECT_EQ(import().changes.weights, parameter_count(config_));
}

TEST_F(Sharded, IndexAndFilesMustAgree) {
  const std::string moved = "model.norm.weight", gone = "lm_head.weight";
  map_[moved] = "a.safetensors";
  write_index();
  EXPECT_ERROR(import(), "b.safetensors: has tensor '" + moved + "'", "says is in a.safetensors");
  map_[moved] = "b.safetensors";
  map_.erase(gone);
  write_index();
  EXPECT_ERROR(import(), "has tensor '" + gone + "'", "says is nowhere");
  map_[gone] = "b.safetensors";
  map_["other.weight"] = "b.safetensors";
  write_index();
  EXPECT_ERROR(import(), "b.safetensors: has no tensor 'other.weight'");
  map_["other.weight"] = "c.safetensors";
  write_index();
  EXPECT_ERROR(import(), "c.safetensors: no such file");
  map_.erase("other.weight");
  write_index();
  write_file("model.safetensors", tensors_);
  EXPECT_ERROR(import(), "has both model.safetensors and model.safetensors.index.json");
}

TEST(SafetensorsIndex, FilesLieBesideIt) {
  EXPECT_EQ(tensor_files_of_index(R"({"metadata": {}, "weight_map": {"a": "x", "b": "y"}})", "i"),
            (TensorFiles{{"a", "x"}, {"b", "y"}}));
  for (const char* name : {"../x", "/x", ".x", "", "a/b"})
    EXPECT_ERROR(tensor_files_of_index(json{{"weight_map", {{"t", name}}}}.dump(), "i"),
                 "i: weight_map.t: '" + std::string(name) + "' is not the name of a file");
  EXPECT_ERROR(tensor_files_of_index(R"({"weight_map": {"t": 1}})", "i"), "weight_map.t: expected");
  EXPECT_ERROR(tensor_files_of_index(R"({"weight_map": {}})", "i"), "lists no tensor");
  EXPECT_ERROR(tensor_files_of_index(R"({"weights": {}})", "i"), "has no object weight_map");
  EXPECT_ERROR(tensor_files_of_index("[]", "i"), "has no object weight_map");
  EXPECT_ERROR(tensor_files_of_index(R"({"weight_map": {"t": "a", "t": "b"}})", "i"), "twice");
}

// Any bytes result in a checkpoint or an Error, and errors leave nothing behind.
TEST_F(Sharded, DamagedDirectoriesNeverCrash) {
  write_index();
  const std::vector<std::string> names{"config.json", "model.safetensors.index.json",
                                       "a.safetensors", "b.safetensors"};
  Draws draws(3);
  int64_t refused = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string& name = names[size_t(draws.index(4))];
    const std::string good = disk.read_file(source_ + "/" + name);
    std::string bad = good;
    const int64_t reach = std::min<int64_t>(std::ssize(bad), 700);  // a header, not its data
    for (int64_t n = 1 + draws.index(2); n > 0; --n)
      bad[size_t(draws.index(reach))] = char(draws.index(256));
    write_text(name, bad);
    try {
      import({.overwrite = Overwrite::kYes});
      disk.remove_tree(output_);
    } catch (const Error&) {
      ++refused;
      EXPECT_FALSE(disk.exists(output_)) << i;
    }
    write_text(name, good);
  }
  EXPECT_GT(refused, 100);
}

// --- tokenizers ----------------------------------------------------------------------------------

class ImportedTokenizer : public HandMade {
 protected:
  ImportedTokenizer() {
    config_.vocab_size = kSmallVocab;
    tensors_.clear();
    for (const ParamSpec& spec : llama_parameters(config_))
      tensors_.push_back(
          {spec.name, StoredType::kBF16,
           spec.rank() == 1 ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols}});
    keys_ = json(hugging_face_config(run_config(), {}, {}));
    write();
    write_text("tokenizer.model", disk.read_file(train_small_tokenizer(directory_.path())));
  }
};

TEST_F(ImportedTokenizer, IsCopiedAndFound) {
  write_text("tokenizer_config.json", R"({"add_bos_token": true})");
  const ImportedModel imported = import();
  EXPECT_NE(imported.note.find("begin with BOS"), std::string::npos) << imported.note;
  const LoadedModel model = load_model(disk, output_, kOneThread);
  const TokenizerFile file = find_tokenizer(model, "");
  EXPECT_EQ(disk.read_file(file.path), disk.read_file(source_ + "/tokenizer.model"));
  EXPECT_TRUE(file.path.starts_with(std::filesystem::canonical(output_).string())) << file.path;
}

// LlamaTokenizer prepends BOS to a text unless its settings say otherwise.
TEST_F(ImportedTokenizer, BosIsTheRuleOfASentencePieceModel) {
  const auto begins_with_bos = [&](const std::string& settings) {
    if (!settings.empty()) write_text("tokenizer_config.json", settings);
    import({.overwrite = Overwrite::kYes});
    return find_tokenizer(find_saved_weights(disk, output_), "").prepend_bos;
  };
  EXPECT_TRUE(begins_with_bos(""));
  EXPECT_TRUE(begins_with_bos(R"({"add_bos_token": null})"));
  EXPECT_FALSE(begins_with_bos(R"({"add_bos_token": false})"));
  EXPECT_FALSE(begins_with_bos(R"({"add_bos_token": true, "texts_begin_with_bos": false})"));
}

// The source's settings for its texts are exported again, even after the weights were converted to
// another format.
TEST_F(ImportedTokenizer, TextsAreThoseOfTheSource) {
  keys_["bos_token_id"] = 3;
  keys_["eos_token_id"] = 7;
  keys_["pad_token_id"] = 9;
  write();
  write_text("generation_config.json", R"({"eos_token_id": [7, 5], "top_p": 0.9})");
  const CapturedLog log;
  import();
  EXPECT_TRUE(log.has("end with token 7 (") && log.has("has 2 ('</s>') there")) << log.text();
  const std::string narrow = directory_ / "narrow", exported = directory_ / "exported";
  convert_checkpoint(
      disk, {.checkpoint = output_, .wanted = {.output = narrow, .weights = WeightFormat::kNvfp4}});
  const LoadedModel model = load_model(disk, narrow, kOneThread, ModelUse::kExport);
  const TokenizerFile file = find_tokenizer(model, "");
  EXPECT_TRUE(file.prepend_bos);
  const Tokenizer tokenizer = load_tokenizer(model.config, file);
  export_model(disk, model, &tokenizer, {.output = exported, .prepend_bos = true, .context = 4096});
  const auto file_of = [&](const char* name) {
    return json::parse(disk.read_file(exported + name));
  };
  for (const char* name : {"/config.json", "/generation_config.json"}) {
    EXPECT_EQ(file_of(name).at("bos_token_id"), 3) << name;
    EXPECT_EQ(file_of(name).at("eos_token_id"), (json{7, 5})) << name;
  }
  EXPECT_EQ(file_of("/config.json").at("pad_token_id"), 9);
  EXPECT_EQ(file_of("/config.json").at("max_position_embeddings"), 4096);
  EXPECT_EQ(file_of("/tokenizer_config.json").at("model_max_length"), 4096);
  EXPECT_EQ(file_of("/generation_config.json").at("pad_token_id"), 9);
  EXPECT_EQ(file_of("/tokenizer_config.json").at("eos_token"), "</s>");
  EXPECT_EQ(file_of("/special_tokens_map.json").at("pad_token"), tokenizer.id_to_piece(9));
  EXPECT_EQ(file_of("/tokenizer.json").at("post_processor").at("special_tokens").size(), 1u);
  EXPECT_TRUE(file_of("/tokenizer.json").at("post_processor").at("special_tokens").contains("<s>"));
  const SourceTexts pads{.ids = {.bos = 3, .eos = 7, .pad = {-1, 999, 8}}};
  EXPECT_EQ(special_pieces(pads, tokenizer, kSmallVocab).eos, 2);
  EXPECT_EQ(special_pieces(pads, tokenizer, kSmallVocab).pad, 8);
  EXPECT_EQ(special_pieces(pads, tokenizer, 1000).pad, 8);
}

// A dangling link is not a missing file.
TEST_F(ImportedTokenizer, LinksThatLeadNowhereAreNamed) {
  write();
  for (const char* const name :
       {"model.safetensors.index.json", "tokenizer.model", "tokenizer.json",
        "generation_config.json", "tokenizer_config.json", "added_tokens.json", "config.json",
        "model.safetensors"}) {
    SCOPED_TRACE(name);
    const std::string path = source_ + "/" + name, kept = path + ".kept";
    const bool there = disk.exists(path);
    if (there) disk.rename(path, kept);
    std::filesystem::create_symlink("nowhere", path);
    EXPECT_ERROR(import(), path + ": is a symbolic link to nowhere, which does not exist");
    disk.remove_file(path);
    if (there) disk.rename(kept, path);
  }
  import();
}

// transformers accepts a list only for EOS.
TEST(ExportedIds, BosAndPaddingAreOneNumber) {
  const SourceTexts source{.ids = {.bos = {999, 3, 4}, .eos = {7, 5}, .pad = {999}}};
  const SpecialIds ids = special_ids(source, nullptr, kSmallVocab);
  EXPECT_EQ(ids.bos, 3);
  EXPECT_EQ(ids.eos, (json{7, 5}));
  EXPECT_EQ(ids.pad, nullptr);
}

TEST_F(ImportedTokenizer, IdsThatAreNoneAreRefused) {
  keys_["eos_token_id"] = {1, "x"};
  write();
  EXPECT_ERROR(import(), "config.json: eos_token_id: expected a number of a token");
  keys_["eos_token_id"] = -1;
  write();
  write_text("generation_config.json", R"({"bos_token_id": 1.5})");
  EXPECT_ERROR(import(), "generation_config.json: bos_token_id", "found the number 1.5");
  write_text("generation_config.json", R"({"bos_token_id": 18446744073709551615})");
  EXPECT_ERROR(import(), "generation_config.json: bos_token_id");
  write_text("generation_config.json", R"({"bos_token_id": 100000})");
  import();
  const LoadedModel model = load_model(disk, output_, kOneThread, ModelUse::kExport);
  EXPECT_EQ(special_ids(model.source, nullptr, kSmallVocab).eos, -1);
  EXPECT_TRUE(SpecialIds::within(model.source.ids.bos, kSmallVocab).empty());
}

const std::string kTwoPieces = R"({"model": {"type": "Unigram", "vocab": [["<s>", 0], ["</s>", 0]]},
    "added_tokens": [{"id": 1, "content": "</s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "post_processor": {"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [0]}},
      "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}})";

TEST_F(ImportedTokenizer, NamesAndTokensThatItDoesNotHaveAreTold) {
  write_text("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "added_tokens_decoder":
      {"1": {"content": "<s>"}, "5000": {"content": "<|im_end|>"}}})");
  write_text("added_tokens.json", R"({"<|im_start|>": 5001, "</s>": 2})");
  const CapturedLog log;
  import();
  EXPECT_TRUE(log.has("eos_token is '<|im_end|>'; here it is '</s>'")) << log.text();
  EXPECT_TRUE(log.has("lacks 2 tokens that files next to it add")) << log.text();
  EXPECT_TRUE(log.has("<|im_end|> <|im_start|>")) << log.text();
}

TEST_F(ImportedTokenizer, TokenizerJsonStandsForATiktokenFileWithoutSettings) {
  write_text("tokenizer.model", "YQ== 0\nYg== 1\n");
  EXPECT_ERROR(import(), "tokenizer.model", "a tiktoken file", "--no-tokenizer");
  write_text("tokenizer.json", kTwoPieces);
  EXPECT_TRUE(import().note.starts_with("tokenizer.json"));
}

TEST_F(ImportedTokenizer, OneThatDoesNotFitIsRefused) {
  write_text("tokenizer.model", "no SentencePiece");
  EXPECT_ERROR(import(), "tokenizer.model", "--no-tokenizer");
  EXPECT_NE(import({.tokenizer = ImportTokenizer::kLeave}).note.find("left out"),
            std::string::npos);
}

TEST_F(ImportedTokenizer, TokenizerJsonIsCopiedOrRefusedByItsKey) {
  disk.remove_file(source_ + "/tokenizer.model");
  write_text("tokenizer.json", kTwoPieces);
  write_text("tokenizer_config.json", R"({"eos_token": {"content": "<pad>"}})");
  CapturedLog log;
  const std::string note = import().note;
  EXPECT_TRUE(note.starts_with("tokenizer.json; its texts begin with BOS")) << note;
  EXPECT_TRUE(log.has("eos_token is '<pad>'; here it is '</s>'")) << log.text();
  EXPECT_EQ(disk.read_file(output_ + "/tokenizer.json"), kTwoPieces);
  write_text("tokenizer.json", "{}");
  disk.remove_tree(output_);
  EXPECT_ERROR(import(), "tokenizer.json: model: found null", "--no-tokenizer");
}

// --- other formats -------------------------------------------------------------------------------

TEST(Import, AnotherFormatIsThatOfConvert) {
  const TempDirectory directory;
  const std::string source = golden_model("plain");
  import_model(disk, {.directory = source, .output = directory / "fp32"});
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kBlockFp8, WeightFormat::kNvfp4, WeightFormat::kMxfp8}) {
    const std::string name(name_of(format)), at_once = directory / (name + "_1"),
                                             in_two = directory / (name + "_2");
    const WeightChanges changes =
        import_model(disk, {.directory = source, .output = at_once, .weights = format}).changes;
    convert_checkpoint(
        disk, {.checkpoint = directory / "fp32", .wanted = {.output = in_two, .weights = format}});
    const std::string file = "/checkpoints/step_00000000/rank_00000_of_00001.safetensors";
    EXPECT_TRUE(disk.read_file(at_once + file) == disk.read_file(in_two + file)) << name;
    EXPECT_GT(changes.changed, changes.weights / 2) << name;
    EXPECT_NO_THROW(load_model(disk, in_two, kOneThread));
  }
}

}  // namespace
}  // namespace mpt::test
