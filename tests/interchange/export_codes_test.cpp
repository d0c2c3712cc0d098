// Exports of stored codes: they decode to the weights of the plain export, by the formulas of the
// compressed-tensors library, and anything that such a file cannot represent is refused.
//
// If MPT_COMPRESSED_TENSORS_PYTHON names an interpreter that has the library, it decodes them
// itself.
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "interchange/export_model.h"
#include "support/expect_error.h"
#include "support/run_program.h"
#include "support/scaled_checkpoint.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

using nlohmann::json;

const ExportOptions kCodes{.format = ExportFormat::kHfCodes};

json config_of(const std::string& directory) {
  return json::parse(posix_file_system().read_file(directory + "/config.json"));
}

struct CodeCase {
  const char* name;
  WeightEncoding linears;
};
const std::array kCases{
    CodeCase{"nvfp4", {.format = WeightFormat::kNvfp4}},
    CodeCase{"mxfp8", {.format = WeightFormat::kMxfp8}},
    CodeCase{"block_fp8", {.format = WeightFormat::kBlockFp8, .fp8_block_size = 32}},
    CodeCase{"block_fp8 of 16, fp16",
             {.format = WeightFormat::kBlockFp8,
              .fp8_block_size = 16,
              .fp8_scale_mode = Fp8ScaleMode::kFp16}},
};

// --- decoding by the published formulas ----------------------------------------------------------

// Even elements in the low nibble; element = code scale / global scale.
std::vector<float> decoded_nvfp4(const SafetensorsReader& file, const std::string& name) {
  constexpr std::array kE2M1Values{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const auto packed = stored_values<uint8_t>(file, file.at(name + ".weight_packed"));
  const auto scales = stored_values<uint8_t>(file, file.at(name + ".weight_scale"));
  const float global = file_values(file, name + ".weight_global_scale").at(0);
  std::vector<float> values;
  for (size_t i = 0; i < 2 * packed.size(); ++i) {
    const int code = packed[i / 2] >> (i % 2 * 4) & 0xF;
    const float magnitude = kE2M1Values[size_t(code & 7)];
    values.push_back((code & 8 ? -magnitude : magnitude) *
                     (decode<kE4M3>(scales.at(i / 16)) / global));
  }
  return values;
}

std::vector<float> decoded_fp8(const SafetensorsReader& file, const std::string& name) {
  const auto codes = stored_values<uint8_t>(file, file.at(name + ".weight"));
  const auto& entry = file.at(name + ".weight_scale");
  std::vector<float> scales;
  if (entry.type == StoredType::kF32)
    scales = stored_values<float>(file, entry);
  else
    for (const uint8_t exponent : stored_values<uint8_t>(file, entry))
      scales.push_back(std::ldexp(1.0f, int(exponent) - 127));
  const size_t block = codes.size() / scales.size();
  std::vector<float> values;
  for (size_t i = 0; i < codes.size(); ++i)
    values.push_back(decode<kE4M3>(codes[i]) * scales[i / block]);
  return values;
}

TEST(ExportCodes, DecodeToTheWeights) {
  for (const auto& [name, linears] : kCases) {
    const ScaledExport exported({.linears = linears});
    const SafetensorsReader codes(posix_file_system(),
                                  exported.run("codes", kCodes) + "/model.safetensors");
    const SafetensorsReader plain(posix_file_system(), exported.run("hf") + "/model.safetensors");
    for (const ParamSpec& spec : llama_parameters(ScaledModel{}.model)) {
      std::vector<float> values;
      const std::string base = spec.name.substr(0, spec.name.rfind('.'));
      if (spec.kind != ParamKind::kLinear) {
        EXPECT_EQ(codes.at(spec.name).type, StoredType::kBF16) << spec.name;
        values = file_values(codes, spec.name);
      } else {
        values = linears.format == WeightFormat::kNvfp4 ? decoded_nvfp4(codes, base)
                                                        : decoded_fp8(codes, base);
      }
      for (float& x : values) x = to_float(bf16_nearest(x));
      EXPECT_EQ(values, file_values(plain, spec.name)) << name << " " << spec.name;
    }
  }
}

TEST(ExportCodes, HaveTheLayoutOfTheLibrary) {
  const auto described = [](const WeightEncoding& linears) {
    const ScaledExport exported({.linears = linears});
    const SafetensorsReader file(posix_file_system(),
                                 exported.run("codes", kCodes) + "/model.safetensors");
    std::vector<std::string> tensors;
    for (const auto& entry : file.tensors())
      if (entry.name.starts_with("model.layers.1.mlp.down_proj."))
        tensors.push_back(entry.name.substr(29) + " " + entry.description());
    return tensors;
  };
  using Tensors = std::vector<std::string>;
  EXPECT_EQ(described(kCases[0].linears),
            (Tensors{"weight_packed U8 [64, 48]", "weight_scale F8_E4M3 [64, 6]",
                     "weight_global_scale F32 [1]"}));
  EXPECT_EQ(described(kCases[1].linears),
            (Tensors{"weight F8_E4M3 [64, 96]", "weight_scale U8 [64, 3]"}));
  EXPECT_EQ(described(kCases[3].linears),
            (Tensors{"weight F8_E4M3 [64, 96]", "weight_scale F32 [64, 6]"}));
}

TEST(ExportCodes, ConfigSaysHowToDecode) {
  const auto config = [](size_t i) {
    const ScaledExport exported({.linears = kCases[i].linears});
    return config_of(exported.run("codes", kCodes));
  };
  // transformers makes a linear layer of a tied head too.
  ScaledModel tied{.linears = kCases[0].linears};
  tied.model.tie_word_embeddings = true;
  EXPECT_EQ(
      config_of(ScaledExport(tied).run("codes", kCodes)).at("quantization_config").at("ignore"),
      json::array({"lm_head"}));
  const json quantization = config(0).at("quantization_config");
  EXPECT_EQ(quantization.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(quantization.at("format"), "nvfp4-pack-quantized");
  EXPECT_EQ(quantization.at("ignore"), json::array({"lm_head"}));
  EXPECT_EQ(quantization.at("config_groups").at("group_0").at("weights"),
            (json{{"num_bits", 4},
                  {"type", "float"},
                  {"symmetric", true},
                  {"dynamic", false},
                  {"strategy", "tensor_group"},
                  {"group_size", 16},
                  {"scale_dtype", "torch.float8_e4m3fn"}}));
  EXPECT_EQ(config(1).at("quantization_config").at("format"), "mxfp8-quantized");
  EXPECT_EQ(config(2).at("quantization_config").at("format"), "float-quantized");
  EXPECT_EQ(config(2).at("torch_dtype"), "bfloat16");
  EXPECT_EQ(config(3).at("torch_dtype"), "float32") << "codes times FP16 scales";
}

TEST(ExportCodes, WhatHasNoSuchLayoutIsRefused) {
  const auto run = [](const WeightEncoding& linears, int64_t intermediate_size) {
    ScaledModel model{.linears = linears};
    model.model.intermediate_size = intermediate_size;
    return ScaledExport(model).run("codes", kCodes);
  };
  EXPECT_ERROR(run({.format = WeightFormat::kF32}, 96), "fp32", "block_fp8, nvfp4 and mxfp8",
               "--format hf");
  EXPECT_ERROR(run({.format = WeightFormat::kBF16}, 96), "checkpoint", "bf16");
  EXPECT_ERROR(run({.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = Nvfp4ScaleMode::kLive}, 96),
               "nvfp4_scale_mode is live", "takes sticky");
  EXPECT_ERROR(run({.format = WeightFormat::kNvfp4}, 88), "model.layers.0.mlp.down_proj.weight",
               "88 columns", "multiple of the 16");
  EXPECT_ERROR(run({.format = WeightFormat::kMxfp8}, 80), "80 columns", "multiple of the 32");
}

TEST(ExportCodes, CompressedTensorsAgrees) {
  const char* python = std::getenv("MPT_COMPRESSED_TENSORS_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "MPT_COMPRESSED_TENSORS_PYTHON names no interpreter with compressed-tensors";
  for (const auto& [name, linears] : kCases)
    for (const bool tied : {false, true}) {
      ScaledModel model{.linears = linears};
      model.model.tie_word_embeddings = tied;
      const ScaledExport exported(model);
      const ProgramResult result =
          run_program({"-B", MPT_SOURCE_DIR "/tests/golden/check_codes.py", "--load",
                       exported.run("codes", kCodes), exported.run("hf")},
                      {.timeout_s = 300, .program = python});
      EXPECT_EQ(result.exit_code, 0) << name << result.out << result.err;
    }
}

}  // namespace
}  // namespace mpt::test
