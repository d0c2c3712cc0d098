// A small model in FP8: one of each choice that affects a pass, in both layouts of operands.
#pragma once

#include <gtest/gtest.h>

#include "model/model_bench.h"

namespace mpt::test {

// F = 21 is stored as 32.
inline const LlamaConfig kConfig{.hidden_size = 32,
                                 .intermediate_size = 21,
                                 .num_hidden_layers = 2,
                                 .num_attention_heads = 2,
                                 .vocab_size = 48};
inline constexpr BatchShape kBatch{2, 16};

inline PrecisionConfig fp8_config(WeightFormat weights = WeightFormat::kBF16) {
  PrecisionConfig config;
  config.weights = weights;
  config.compute = ComputeFormat::kFp8;
  config.fp8_history = 4;
  return config;
}

struct Variant {
  std::string name;
  PrecisionConfig config;
  Fp8Layout layout = Fp8Layout::kAny;

  friend void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
};

// Returns one of each choice that affects a pass.
inline std::vector<Variant> variants() {
  std::vector<Variant> all{{"plain", fp8_config()},
                           {"block_fp8", fp8_config(WeightFormat::kBlockFp8)},
                           {"nvfp4", fp8_config(WeightFormat::kNvfp4)},
                           {"fp32", fp8_config(WeightFormat::kF32)}};
  const auto add = [&](const char* name, const auto& change) {
    all.push_back({name, fp8_config()});
    change(all.back().config);
  };
  add("head", [](PrecisionConfig& c) { c.fp8_lm_head = true; });
  add("wide_source", [](PrecisionConfig& c) { c.fp8_cast_source = Format::kF32; });
  add("wide_source_head",
      [](PrecisionConfig& c) { c.fp8_cast_source = Format::kF32, c.fp8_lm_head = true; });
  add("current", [](PrecisionConfig& c) { c.fp8_recipe = Fp8Recipe::kCurrent; });
  add("microbatch_recast", [](PrecisionConfig& c) { c.fp8_weight_recast = Cadence::kMicrobatch; });
  add("current_head",
      [](PrecisionConfig& c) { c.fp8_recipe = Fp8Recipe::kCurrent, c.fp8_lm_head = true; });
  add("step_update", [](PrecisionConfig& c) { c.fp8_amax_update = Cadence::kStep; });
  return all;
}

inline std::vector<Variant> variants_in_both_layouts() {
  std::vector<Variant> all = variants();
  for (Variant variant : variants()) {
    variant.name += "_rows_of_k";
    variant.layout = Fp8Layout::kRowsOfK;
    all.push_back(variant);
  }
  return all;
}

inline BenchOptions options_of(const PrecisionConfig& config) {
  return {.micro_batch = kBatch,
          .storage = DType::kBF16,
          .gradient = DType::kF32,
          .loss_chunk_rows = 16,
          .fp8 = config};
}

inline BenchOptions options_of(const Variant& variant) {
  BenchOptions options = options_of(variant.config);
  options.fp8_gemm.layout = variant.layout;
  return options;
}

inline std::string variant_name(const testing::TestParamInfo<Variant>& tested) {
  return tested.param.name;
}

}  // namespace mpt::test
