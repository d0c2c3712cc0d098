// GGUF exports: names, order of rows and values against the Hugging Face export of the same
// checkpoint, metadata, and parts that llama.cpp would compute differently.
//
// If MPT_GGUF_PYTHON names an interpreter that has the gguf package, it reads them.
#include "interchange/export_gguf.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/run_program.h"
#include "support/scaled_checkpoint.h"
#include "support/temp_directory.h"
#include "text/sentencepiece/sentencepiece_model.h"

namespace mpt::test {
namespace {

const ExportOptions kGguf{.format = ExportFormat::kGguf};

// The part of the format used by llama files; keys with their values as text, arrays by length.
class GgufFile {
 public:
  struct Entry {
    std::vector<int64_t> shape;  // rows, columns
    uint32_t type = 0;
    uint64_t offset = 0;
  };

  explicit GgufFile(const std::string& path) : bytes_(posix_file_system().read_file(path)) {
    EXPECT_EQ(take(4), "GGUF");
    EXPECT_EQ(number<uint32_t>(), 3u);
    const auto tensor_count = number<uint64_t>(), entry_count = number<uint64_t>();
    for (uint64_t i = 0; i < entry_count; ++i) {
      const std::string key = text();
      const auto type = number<uint32_t>();
      if (type == 9) arrays[key] = array();
      metadata[key] = type == 9 ? fmt::format("{} values", arrays[key].size()) : value(type);
    }
    for (uint64_t i = 0; i < tensor_count; ++i) read_tensor();
    data_ = (at_ + 31) / 32 * 32;
  }

  [[nodiscard]] std::vector<float> values(const std::string& name) const {
    const Entry& entry = tensors.at(name);
    int64_t count = 1;
    for (const int64_t n : entry.shape) count *= n;
    std::vector<float> all;
    const char* const data = bytes_.data() + data_ + entry.offset;
    for (int64_t i = 0; i < count; ++i) all.push_back(element(entry.type, data, i));
    return all;
  }

  std::map<std::string, std::string> metadata;
  std::map<std::string, std::vector<std::string>> arrays;
  std::map<std::string, Entry> tensors;

 private:
  static float element(uint32_t type, const char* data, int64_t i) {
    if (type == 0) return at<float>(data + 4 * i);
    const auto half = at<uint16_t>(data + 2 * i);
    return type == 1 ? fp16_decode(half) : to_float(bf16{half});
  }
  template <class T>
  static T at(const char* data) {
    T value;
    std::memcpy(&value, data, sizeof value);
    return value;
  }
  std::string take(size_t count) {
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <class T>
  T number() {
    return at<T>(take(sizeof(T)).data());
  }
  std::string text() { return take(number<uint64_t>()); }
  std::string value(uint32_t type) {
    switch (type) {
      case 4:
        return fmt::format("{}", number<uint32_t>());
      case 5:
        return fmt::format("{}", number<int32_t>());
      case 6:
        return fmt::format("{}", number<float>());
      case 7:
        return number<uint8_t>() != 0 ? "true" : "false";
      case 8:
        return text();
      default:
        throw error("no value of type {} is expected", type);
    }
  }
  std::vector<std::string> array() {
    const auto type = number<uint32_t>();
    std::vector<std::string> values(number<uint64_t>());
    for (std::string& each : values) each = value(type);
    return values;
  }
  void read_tensor() {
    const std::string name = text();
    Entry entry;
    entry.shape.resize(number<uint32_t>());
    for (size_t i = entry.shape.size(); i-- > 0;) entry.shape[i] = int64_t(number<uint64_t>());
    entry.type = number<uint32_t>();
    entry.offset = number<uint64_t>();
    EXPECT_EQ(entry.offset % 32, 0u) << name;
    tensors[name] = entry;
  }

  std::string bytes_;
  size_t at_ = 0, data_ = 0;
};

ExportOptions of_type(MatrixType type) { return {.format = ExportFormat::kGguf, .type = type}; }

// Pair i of a head's rotation: rows i and i + D/2 become rows 2i and 2i + 1.
std::vector<float> in_pairs(const std::vector<float>& rows, int64_t head_dim, int64_t cols) {
  std::vector<float> pairs(rows.size());
  for (int64_t row = 0; row < std::ssize(rows) / cols; ++row) {
    const int64_t head = row / head_dim, in_head = row % head_dim, half = head_dim / 2;
    const int64_t target = head * head_dim + 2 * (in_head % half) + in_head / half;
    std::copy_n(rows.begin() + row * cols, cols, pairs.begin() + target * cols);
  }
  return pairs;
}

// Returns llama.cpp's name of a tensor of these models.
std::string llama_cpp_name(std::string name) {
  static const std::map<std::string, std::string> kNames{
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.N.input_layernorm", "blk.N.attn_norm"},
      {"model.layers.N.self_attn.q_proj", "blk.N.attn_q"},
      {"model.layers.N.self_attn.k_proj", "blk.N.attn_k"},
      {"model.layers.N.self_attn.v_proj", "blk.N.attn_v"},
      {"model.layers.N.self_attn.o_proj", "blk.N.attn_output"},
      {"model.layers.N.self_attn.q_norm", "blk.N.attn_q_norm"},
      {"model.layers.N.self_attn.k_norm", "blk.N.attn_k_norm"},
      {"model.layers.N.post_attention_layernorm", "blk.N.ffn_norm"},
      {"model.layers.N.mlp.gate_proj", "blk.N.ffn_gate"},
      {"model.layers.N.mlp.up_proj", "blk.N.ffn_up"},
      {"model.layers.N.mlp.down_proj", "blk.N.ffn_down"}};
  const size_t digit = name.find_first_of("0123456789");
  const char layer = digit == std::string::npos ? '\0' : name[digit];
  if (layer != '\0') name[digit] = 'N';
  std::string other = kNames.at(name.substr(0, name.size() - std::string_view(".weight").size()));
  std::ranges::replace(other, 'N', layer);
  return other + ".weight";
}

// Differences between the tensors of a file and those of the Hugging Face export.
struct Written {
  uint32_t matrices = 0;   // GGUF's code of their type
  int64_t paired_dim = 0;  // of heads whose queries and keys are in pairs; 0: none are
};
void expect_tensors(const GgufFile& file, const SafetensorsReader& plain, const Written& written) {
  for (const auto& entry : plain.tensors()) {
    const std::string name = llama_cpp_name(entry.name);
    ASSERT_TRUE(file.tensors.contains(name)) << name;
    EXPECT_EQ(file.tensors.at(name).shape, entry.shape) << name;
    const uint32_t type = entry.shape.size() == 2 ? written.matrices : 0;
    EXPECT_EQ(file.tensors.at(name).type, type) << name;
    std::vector<float> want = file_values(plain, entry.name);
    if (written.paired_dim > 0 &&
        (name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight")))
      want = in_pairs(want, written.paired_dim, entry.shape[1]);
    for (float& x : want)
      if (type != 0) x = type == 1 ? fp16_decode(fp16_nearest(x)) : rounded_to<bf16>(x);
    EXPECT_EQ(file.values(name), want) << name;
  }
}

TEST(ExportGguf, HoldsTheWeightsOfTheHuggingFaceExport) {
  const std::array<std::pair<MatrixType, uint32_t>, 4> types{{{MatrixType::kStored, 0},
                                                              {MatrixType::kF32, 0},
                                                              {MatrixType::kBF16, 30},
                                                              {MatrixType::kF16, 1}}};
  const ScaledExport exported({.linears = {.format = WeightFormat::kF32}});
  const SafetensorsReader plain(posix_file_system(), exported.run("hf") + "/model.safetensors");
  for (const auto& [type, code] : types) {
    const GgufFile file(exported.run(fmt::format("{}.gguf", name_of(type)), of_type(type)));
    EXPECT_EQ(file.tensors.size(), plain.tensors().size());
    expect_tensors(file, plain, {.matrices = code, .paired_dim = 16});
  }
}

const RopeScaling kLlama3Scaling{.rope_type = RopeType::kLlama3,
                                 .factor = 4,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4,
                                 .original_max_position_embeddings = 128};

ScaledModel grouped_model() {
  ScaledModel model{.linears = {.format = WeightFormat::kF32}};
  model.model.num_key_value_heads = 2;
  model.model.head_size = 32;
  return model;
}

// Divisors by the formula in Python: 1 up to a wavelength of 128 / 4, 4 from 128 on.
TEST(ExportGguf, Llama32HasGroupsAndATiedHeadAndScaledFrequencies) {
  ScaledModel model = grouped_model();
  model.model.tie_word_embeddings = true;
  model.model.rope_scaling = kLlama3Scaling;
  const ScaledExport exported(model);
  const SafetensorsReader plain(posix_file_system(), exported.run("hf") + "/model.safetensors");
  const GgufFile file(exported.run("model.gguf", kGguf));
  EXPECT_EQ(file.metadata.at("general.architecture"), "llama");
  EXPECT_EQ(file.metadata.at("llama.attention.head_count"), "4");
  EXPECT_EQ(file.metadata.at("llama.attention.head_count_kv"), "2");
  EXPECT_EQ(file.metadata.at("llama.attention.key_length"), "32");
  EXPECT_EQ(file.metadata.at("llama.attention.value_length"), "32");
  EXPECT_EQ(file.metadata.at("llama.rope.dimension_count"), "32");
  EXPECT_FALSE(file.metadata.contains("llama.rope.scaling.type"));
  EXPECT_EQ(file.tensors.size(), plain.tensors().size() + 1);
  EXPECT_FALSE(file.tensors.contains("output.weight"));
  expect_tensors(file, plain, {.matrices = 0, .paired_dim = 32});
  ASSERT_TRUE(file.tensors.contains("rope_freqs.weight"));
  EXPECT_EQ(file.tensors.at("rope_freqs.weight").type, 0u);
  EXPECT_EQ(file.tensors.at("rope_freqs.weight").shape, std::vector<int64_t>{16});
  const std::vector<float> want{1, 1, 1, 1.1041546f, 1.9634954f, 3.4916434f, 4, 4,
                                4, 4, 4, 4,          4,          4,          4, 4};
  const std::vector<float> divisors = file.values("rope_freqs.weight");
  for (size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(divisors[i], want[i]) << i;
}

// llama.cpp rotates the halves of a head of qwen3 unchanged.
TEST(ExportGguf, Qwen3HasNormedHeadsInTheirOrder) {
  ScaledModel model = grouped_model();
  model.model.qk_norm = true;
  model.model.rope_scaling = {.rope_type = RopeType::kLinear, .factor = 4};
  const ScaledExport exported(model);
  const SafetensorsReader plain(posix_file_system(), exported.run("hf") + "/model.safetensors");
  const GgufFile file(exported.run("model.gguf", kGguf));
  EXPECT_EQ(file.metadata.at("general.architecture"), "qwen3");
  EXPECT_EQ(file.metadata.at("qwen3.attention.head_count"), "4");
  EXPECT_EQ(file.metadata.at("qwen3.attention.head_count_kv"), "2");
  EXPECT_EQ(file.metadata.at("qwen3.rope.scaling.type"), "linear");
  EXPECT_EQ(file.metadata.at("qwen3.rope.scaling.factor"), "4");
  EXPECT_EQ(file.tensors.size(), plain.tensors().size());
  EXPECT_TRUE(file.tensors.contains("blk.1.attn_k_norm.weight"));
  EXPECT_TRUE(file.tensors.contains("output.weight"));
  expect_tensors(file, plain, {.matrices = 0});
}

// FP16 scales times E4M3 codes have more bits than BF16.
TEST(ExportGguf, F32HoldsScaledWeightsExactly) {
  const ScaledExport exported({.linears = {.format = WeightFormat::kBlockFp8,
                                           .fp8_block_size = 32,
                                           .fp8_scale_mode = Fp8ScaleMode::kFp16}});
  const GgufFile stored(exported.run("stored.gguf", kGguf));
  const GgufFile exact(exported.run("f32.gguf", of_type(MatrixType::kF32)));
  const std::string name = "blk.0.ffn_up.weight";
  EXPECT_EQ(stored.tensors.at(name).type, 30u);
  std::vector<float> rounded = exact.values(name);
  EXPECT_NE(rounded, stored.values(name));
  for (float& x : rounded) x = rounded_to<bf16>(x);
  EXPECT_EQ(rounded, stored.values(name));
}

TEST(ExportGguf, MetadataDescribesModelAndTokenizer) {
  const TempDirectory directory;
  const ScaledExport exported({.linears = {.format = WeightFormat::kNvfp4},
                               .tokenizer = train_small_tokenizer(directory.path())});
  ExportOptions options = kGguf;
  options.prepend_bos = true;
  const GgufFile file(exported.run("model.gguf", options));
  EXPECT_EQ(file.metadata,
            (std::map<std::string, std::string>{{"general.architecture", "llama"},
                                                {"general.name", "small"},
                                                {"general.alignment", "32"},
                                                {"general.file_type", "32"},
                                                {"llama.vocab_size", "300"},
                                                {"llama.context_length", "64"},
                                                {"llama.embedding_length", "64"},
                                                {"llama.block_count", "2"},
                                                {"llama.feed_forward_length", "96"},
                                                {"llama.attention.head_count", "4"},
                                                {"llama.attention.head_count_kv", "4"},
                                                {"llama.attention.key_length", "16"},
                                                {"llama.attention.value_length", "16"},
                                                {"llama.attention.layer_norm_rms_epsilon", "1e-06"},
                                                {"llama.rope.dimension_count", "16"},
                                                {"llama.rope.freq_base", "10000"},
                                                {"tokenizer.ggml.model", "llama"},
                                                {"tokenizer.ggml.pre", "default"},
                                                {"tokenizer.ggml.tokens", "300 values"},
                                                {"tokenizer.ggml.scores", "300 values"},
                                                {"tokenizer.ggml.token_type", "300 values"},
                                                {"tokenizer.ggml.bos_token_id", "1"},
                                                {"tokenizer.ggml.eos_token_id", "2"},
                                                {"tokenizer.ggml.unknown_token_id", "0"},
                                                {"tokenizer.ggml.add_bos_token", "true"},
                                                {"tokenizer.ggml.add_eos_token", "false"},
                                                {"tokenizer.ggml.add_space_prefix", "true"}}));
}

// --- metadata for single options -----------------------------------------------------------------

GgufFile metadata_file(const RunConfig& config, const Tokenizer& tokenizer) {
  const TempDirectory directory;
  const std::string path = directory / "model.gguf";
  GgufWriter writer(posix_file_system(), path, gguf_metadata(config, {}, &tokenizer, kGguf), {});
  writer.commit();
  return GgufFile(path);
}

bool has_entry(const GgufMetadata& metadata, const std::string& text) {
  return metadata.bytes().find(text) != std::string::npos;
}

TEST(ExportGguf, OtherModelsHaveTheirKeys) {
  RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  EXPECT_FALSE(has_entry(gguf_metadata(config, {}, nullptr, kGguf), "rope.scaling"));
  EXPECT_TRUE(has_entry(gguf_metadata(config, {}, nullptr, kGguf), "no_vocab"));
  config.model.qk_norm = true;
  config.model.rope_scaling = {.rope_type = RopeType::kLinear, .factor = 4};
  const GgufMetadata qwen3 = gguf_metadata(config, {}, nullptr, kGguf);
  EXPECT_TRUE(has_entry(qwen3, "qwen3.rope.scaling.type"));
  EXPECT_TRUE(has_entry(qwen3, "qwen3.rope.scaling.factor"));
  EXPECT_FALSE(has_entry(qwen3, "llama"));
  EXPECT_EQ(gguf_name("model.layers.12.self_attn.q_norm.weight"), "blk.12.attn_q_norm.weight");
  EXPECT_EQ(gguf_name("model.layers.0.post_attention_layernorm.weight"), "blk.0.ffn_norm.weight");
}

Tokenizer subword_tokenizer(const std::string& name) {
  return Tokenizer::load(MPT_SOURCE_DIR "/tests/golden/subword/" + name + ".json");
}

TEST(ExportGguf, ByteLevelTokenizersHaveTheirKeys) {
  RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  config.model.vocab_size = 430;
  for (const auto& [name, pre] :
       {std::pair{"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = subword_tokenizer(name);
    const CapturedLog log;
    const GgufFile file = metadata_file(config, tokenizer);
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.model"), "gpt2");
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.pre"), pre);
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.tokens"), "430 values");
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.token_type"), "430 values");
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.merges"), "164 values");
    EXPECT_FALSE(file.metadata.contains("tokenizer.ggml.scores"));
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.eos_token_id"),
              fmt::format("{}", tokenizer.eos_id()));
    EXPECT_EQ(file.metadata.at("tokenizer.ggml.add_bos_token"), "false");
    EXPECT_EQ(log.text().find("NFC") != std::string::npos, std::string(name) == "qwen2");
  }
}

// Type codes as numbered by llama.cpp and SentencePiece.
const std::map<PieceType, std::string> kTypeCodes{
    {PieceType::kNormal, "1"},      {PieceType::kUnknown, "2"}, {PieceType::kControl, "3"},
    {PieceType::kUserDefined, "4"}, {PieceType::kUnused, "5"},  {PieceType::kByte, "6"}};

// 420 pieces, and tokens that occur in no text for the other rows of the embedding.
TEST(ExportGguf, PiecesAreThoseOfTheSentencePieceModel) {
  RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  config.model.vocab_size = 422;
  const Tokenizer tokenizer =
      Tokenizer::load(MPT_SOURCE_DIR "/tests/golden/tokenizers/bpe_bare.model");
  std::vector<std::string> tokens, scores, types;
  for (const Piece& piece : parse_sentencepiece_model(tokenizer.model_bytes()).pieces) {
    tokens.push_back(piece.text);
    scores.push_back(fmt::format("{}", piece.score));
    types.push_back(kTypeCodes.at(piece.type));
  }
  ASSERT_EQ(tokens.size(), 420u);
  for (const auto* token : {"[PAD420]", "[PAD421]"}) {
    tokens.emplace_back(token);
    scores.emplace_back("-1000");
    types.emplace_back("5");
  }
  const GgufFile file = metadata_file(config, tokenizer);
  EXPECT_EQ(file.arrays.at("tokenizer.ggml.tokens"), tokens);
  EXPECT_EQ(file.arrays.at("tokenizer.ggml.scores"), scores);
  EXPECT_EQ(file.arrays.at("tokenizer.ggml.token_type"), types);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.padding_token_id"), "3");
}

TEST(ExportGguf, TokensAndMergesAreThoseOfTheTokenizerJson) {
  RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  config.model.vocab_size = 426;
  const Tokenizer tokenizer = subword_tokenizer("qwen2");
  const auto vocabulary = nlohmann::json::parse(posix_file_system().read_file(tokenizer.path()));
  std::vector<std::string> tokens(426), types(426, "1"), merges;
  for (const auto& [token, id] : vocabulary.at("model").at("vocab").items())
    tokens.at(id.get<size_t>()) = token;
  for (const auto& added : vocabulary.at("added_tokens")) {
    tokens.at(added.at("id").get<size_t>()) = added.at("content");
    types.at(added.at("id").get<size_t>()) = added.at("special").get<bool>() ? "3" : "4";
  }
  tokens.back() = "[PAD425]";
  types.back() = "5";
  for (const auto& merge : vocabulary.at("model").at("merges"))
    merges.push_back(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  const GgufFile file = metadata_file(config, tokenizer);
  EXPECT_EQ(file.arrays.at("tokenizer.ggml.tokens"), tokens);
  EXPECT_EQ(file.arrays.at("tokenizer.ggml.token_type"), types);
  EXPECT_EQ(file.arrays.at("tokenizer.ggml.merges"), merges);
  EXPECT_EQ(std::ranges::count(types, "4"), 2);
}

// Returns a tokenizer with a part of its file replaced.
Tokenizer changed_tokenizer(const std::string& name, const std::string& from,
                            const std::string& to) {
  const std::string path = MPT_SOURCE_DIR "/tests/golden/subword/" + name + ".json";
  std::string text = posix_file_system().read_file(path);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const TempDirectory directory;
  const std::string changed = directory / "tokenizer.json";
  write_file_atomically(posix_file_system(), changed, bytes_of(text.replace(at, from.size(), to)));
  return Tokenizer::load(changed);
}

// SmolLM2 splits digits off, then words like GPT-2.
TEST(ExportGguf, DigitsApartAreNamed) {
  const RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  const auto name_of_split = [&](const std::string& individual) {
    const Tokenizer tokenizer =
        changed_tokenizer("gpt2", R"("type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": true)",
                          R"("type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": )" +
                              individual + R"(}, {"type": "ByteLevel", "add_prefix_space": false,
         "trim_offsets": true, "use_regex": true}])");
    return metadata_file(config, tokenizer).metadata.at("tokenizer.ggml.pre");
  };
  EXPECT_EQ(name_of_split("true"), "smollm");
  EXPECT_ERROR(name_of_split("false"), "SmolLM only", "--no-tokenizer");
}

TEST(ExportGguf, RotatedRowsOfAHead) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 16; ++row) rows.push_back(rotated_row(row, 8));
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
}

// Factors of Llama 3.1 (theta 500000, D 128, factor 8, from 8192), by the formula in Python.
TEST(ExportGguf, Llama3DividesLowFrequencies) {
  LlamaConfig config{.hidden_size = 4096, .num_attention_heads = 32, .rope_theta = 500000};
  EXPECT_TRUE(gguf_frequency_divisors(config).empty());
  config.rope_scaling = {.rope_type = RopeType::kLinear, .factor = 8};
  EXPECT_TRUE(gguf_frequency_divisors(config).empty());
  config.rope_scaling.rope_type = RopeType::kLlama3;
  const std::vector<float> divisors = gguf_frequency_divisors(config);
  ASSERT_EQ(divisors.size(), 64u);
  EXPECT_EQ(divisors[0], 1);
  EXPECT_EQ(divisors[28], 1);
  EXPECT_FLOAT_EQ(divisors[30], 1.5534146f);
  EXPECT_FLOAT_EQ(divisors[34], 5.2573266f);
  EXPECT_EQ(divisors[35], 8);
  EXPECT_EQ(divisors[63], 8);
}

// --- refusals ------------------------------------------------------------------------------------

TEST(ExportGguf, TokenizersThatLlamaCppReadsDifferentlyAreRefused) {
  const auto run = [](const std::string& name) {
    ScaledModel model{.linears = {.format = WeightFormat::kF32},
                      .tokenizer = MPT_SOURCE_DIR "/tests/golden/tokenizers/" + name};
    model.model.vocab_size = 480;
    return ScaledExport(model).run("model.gguf", kGguf);
  };
  EXPECT_ERROR(run("unigram.model"), "unigram.model", "llama.cpp", "--no-tokenizer");
  EXPECT_ERROR(run("bpe_unknown.model"), "byte_fallback");
  EXPECT_ERROR(run("bpe_squeezed.model"), "remove_extra_whitespaces");
}

TEST(ExportGguf, TheLineOfTheVersionIsNoMerge) {
  const RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  const Tokenizer tokenizer =
      changed_tokenizer("llama3", R"("merges":[)", R"("merges":["#version: 0.2",)");
  EXPECT_EQ(metadata_file(config, tokenizer).metadata.at("tokenizer.ggml.merges"), "164 values");
}

// The reader treats null as missing, and so does the export.
TEST(ExportGguf, NullIsWhatIsMissing) {
  const RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  const auto split_of = [&](const std::string& name, const std::string& from,
                            const std::string& to) {
    const Tokenizer tokenizer = changed_tokenizer(name, from, to);
    return metadata_file(config, tokenizer).metadata.at("tokenizer.ggml.pre");
  };
  EXPECT_EQ(split_of("gpt2", R"("use_regex": true)", R"("use_regex": null)"), "gpt-2");
  EXPECT_EQ(split_of("gpt2", R"("ignore_merges": false)", R"("ignore_merges": null)"), "gpt-2");
  EXPECT_ERROR(split_of("llama3", R"("ignore_merges":true)", R"("ignore_merges":null)"),
               "ignore_merges is false");
}

TEST(ExportGguf, WordsThatLlamaCppDoesNotKnowAreRefused) {
  const RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  const auto refuse = [&](const std::string& from, const std::string& to, const std::string& part) {
    const Tokenizer tokenizer = changed_tokenizer("llama3", from, to);
    EXPECT_ERROR(gguf_metadata(config, {}, &tokenizer, kGguf), part, "--no-tokenizer");
  };
  refuse("{1,3}", "{1,4}", "words of byte-level BPE of GPT-2, Llama-3, Qwen2 or SmolLM only");
  refuse(R"("ignore_merges":true)", R"("ignore_merges":false)", "ignore_merges is false");
  refuse(R"("normalizer":null)", R"("normalizer":{"type":"NFD"})", "normalizer is NFD");
  const Tokenizer unigram = subword_tokenizer("unigram_bytes");
  EXPECT_ERROR(gguf_metadata(config, {}, &unigram, kGguf), "--no-tokenizer");
  const Tokenizer tiktoken =
      Tokenizer::load(MPT_SOURCE_DIR "/tests/golden/subword/cl100k_base.tiktoken");
  EXPECT_ERROR(gguf_metadata(config, {}, &tiktoken, kGguf), "tiktoken", "--no-tokenizer");
}

TEST(ExportGguf, NormedHeadsWithLlama3FrequenciesAreRefused) {
  ScaledModel model = grouped_model();
  model.model.qk_norm = true;
  model.model.rope_scaling = kLlama3Scaling;
  const ScaledExport exported(model);
  EXPECT_ERROR(exported.run("model.gguf", kGguf), exported.checkpoint, "qk_norm", "llama3",
               "--format hf");
  EXPECT_FALSE(posix_file_system().exists(exported.directory / "model.gguf"));
}

// Ends of an imported model's texts, if its tokenizer does not define them.
TEST(ExportGguf, IdsOfTheSourceCompleteThoseOfTheTokenizer) {
  RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  config.model.vocab_size = 426;
  const Tokenizer tokenizer = changed_tokenizer("gpt2", "<|endoftext|>", "<|unnamed|>");
  ASSERT_LT(tokenizer.eos_id(), 0);
  EXPECT_ERROR(gguf_metadata(config, {}, &tokenizer, kGguf), "has no EOS piece");
  ExportOptions options = kGguf;
  options.context = 77;
  const TempDirectory directory;
  const std::string path = directory / "metadata.gguf";
  const SourceTexts source{.ids = {.bos = {}, .eos = {500, 5, 6}, .pad = 7}};
  GgufWriter(posix_file_system(), path, gguf_metadata(config, source, &tokenizer, options), {})
      .commit();
  const GgufFile file(path);
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.eos_token_id"), "5");
  EXPECT_EQ(file.metadata.at("tokenizer.ggml.padding_token_id"), "7");
  EXPECT_EQ(file.metadata.at("llama.context_length"), "77");
}

// A row of the embedding without a piece is a token of the file, [PAD430].
TEST(ExportGguf, IdsBeyondThePiecesAreRowsOfTheEmbedding) {
  RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  config.model.vocab_size = 440;
  const Tokenizer tokenizer = subword_tokenizer("gpt2");
  ASSERT_LT(tokenizer.vocab_size(), 430);
  const auto padding = [&](const nlohmann::json& id) {
    return has_entry(
        gguf_metadata(config, {.ids = {.bos = {}, .eos = {}, .pad = id}}, &tokenizer, kGguf),
        "tokenizer.ggml.padding_token_id");
  };
  EXPECT_TRUE(padding(430));
  EXPECT_FALSE(padding(440));
}

TEST(ExportGguf, MoreLayersThanLlamaCppReadsAreTold) {
  const CapturedLog log;
  LlamaConfig model = small_config(30);
  model.num_hidden_layers = 513;
  const TempDirectory directory;
  const std::string checkpoint = directory / "checkpoint";
  write_model_checkpoint(checkpoint, {.model = model});
  export_model(posix_file_system(),
               load_model(posix_file_system(), checkpoint, kOneThread, ModelUse::kExport), nullptr,
               {.output = directory / "model.gguf", .format = ExportFormat::kGguf});
  EXPECT_TRUE(log.has("model.num_hidden_layers is 513") && log.has("llama.cpp")) << log.text();
}

TEST(ExportGguf, ABosThatTheTokenizerLacksIsRefused) {
  const RunConfig config = ScaledModel{.linears = {.format = WeightFormat::kF32}}.config();
  const Tokenizer tokenizer = subword_tokenizer("gpt2");
  ExportOptions with_bos = kGguf;
  with_bos.prepend_bos = true;
  EXPECT_ERROR(gguf_metadata(config, {}, &tokenizer, with_bos), "has no BOS piece",
               "--no-tokenizer");
}

TEST(ExportGguf, ValuesBeyondF16AreNamed) {
  const GoldenModel golden = load_golden("llama_tiny");
  NamedValues weights = golden.weights;
  weights.at("model.layers.1.mlp.up_proj.weight").at(3) = 70000;
  const TempDirectory directory;
  write_model_checkpoint(directory / "checkpoint", {.model = golden.config, .weights = weights});
  ExportOptions options = of_type(MatrixType::kF16);
  options.output = directory / "model.gguf";
  const LoadedModel model = load_model(posix_file_system(), directory / "checkpoint",
                                       {.type = DeviceType::kCpu}, use_of_export(options));
  EXPECT_ERROR(export_model(posix_file_system(), model, nullptr, options), "blk.1.ffn_up.weight",
               "70000", "--type bf16 or f32");
  EXPECT_FALSE(posix_file_system().exists(options.output));
}

TEST(ExportGguf, FilesAreReplacedOnlyWhenAskedAndOnlyTheirKind) {
  const ScaledExport exported({.linears = {.format = WeightFormat::kF32}});
  FileSystem& fs = posix_file_system();
  ExportOptions overwrite = kGguf;
  overwrite.overwrite = Overwrite::kYes;
  EXPECT_ERROR(exported.run("directory", kGguf), "ending in .gguf");
  const std::string path = exported.run("model.gguf", kGguf);
  EXPECT_ERROR(exported.run("model.gguf", kGguf), "already exists", "--overwrite");
  EXPECT_EQ(exported.run("model.gguf", overwrite), path);
  write_file_atomically(fs, exported.directory / "thesis.gguf", bytes_of("mine"));
  EXPECT_ERROR(exported.run("thesis.gguf", overwrite), "is not a GGUF file");
  write_file_atomically(fs, exported.directory / "empty.gguf", {});
  EXPECT_GT(fs.file_size(exported.run("empty.gguf", overwrite)), 0);  // as created by mktemp
  fs.create_directory(exported.directory / "folder.gguf");
  EXPECT_ERROR(exported.run("folder.gguf", overwrite), "is a directory");
}

TEST(ExportGguf, TheGgufPackageAgrees) {
  const char* python = std::getenv("MPT_GGUF_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "MPT_GGUF_PYTHON names no interpreter with gguf";
  const TempDirectory directory;
  const std::string tokenizer = train_small_tokenizer(directory.path());
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kNvfp4})
    for (const MatrixType type : {MatrixType::kStored, MatrixType::kF16}) {
      const ScaledExport exported({.linears = {.format = format}, .tokenizer = tokenizer});
      const ProgramResult result =
          run_program({"-B", MPT_SOURCE_DIR "/tests/golden/make_gguf_golden.py", "--check",
                       exported.run("model.gguf", of_type(type)), exported.run("hf")},
                      {.timeout_s = 300, .program = python});
      EXPECT_EQ(result.exit_code, 0) << name_of(format) << result.out << result.err;
    }
}

}  // namespace
}  // namespace mpt::test
