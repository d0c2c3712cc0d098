// Exact bytes of weights and states for every size (docs/numerics.md "Memory accounting" and
// "Apollo-E").
#include "train/resources/storage_bytes.h"

#include <gtest/gtest.h>

#include "config/run_device.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

const std::string kConfigs = std::string(MPT_SOURCE_DIR) + "/configs/";

StorageBytes bytes_of_config(const std::string& name,
                             const std::vector<std::string>& overrides = {}) {
  const RunConfig config = load_run_config(kConfigs + name + ".json", overrides);
  return storage_bytes(config, *make_device(config.device));
}

struct Size {
  const char* name;
  int64_t fp8, nvfp4, dense_states;
  std::array<int64_t, 4> apollo_e;  // of rank 1, 4, 8, 16
};

class StorageOfSize : public testing::TestWithParam<Size> {};

TEST_P(StorageOfSize, Weights) {
  const Size& size = GetParam();
  const std::string name = size.name;
  EXPECT_EQ(bytes_of_config(name + "_fp8").logical_weights, size.fp8);
  EXPECT_EQ(bytes_of_config(name + "_nvfp4").logical_weights, size.nvfp4);
  EXPECT_GE(bytes_of_config(name + "_nvfp4").allocated_weights, size.nvfp4);
}

TEST_P(StorageOfSize, States) {
  const Size& size = GetParam();
  const std::string name = size.name;
  EXPECT_EQ(bytes_of_config(name + "_bf16").logical_states, size.dense_states);
  constexpr std::array kRanks{1, 4, 8, 16};
  for (size_t i = 0; i < kRanks.size(); ++i)
    for (const char* sharing : {"mini", "channel"}) {
      const StorageBytes bytes = bytes_of_config(
          name + "_bf16_apollo_e", {fmt::format("optimizer.apollo_e_rank={}", kRanks[i]),
                                    fmt::format("optimizer.apollo_e={}", sharing)});
      EXPECT_EQ(bytes.logical_states, size.apollo_e[i]) << kRanks[i] << " " << sharing;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, StorageOfSize,
    testing::Values(Size{"60m",
                         91'247'616,
                         79'783'136,
                         348'441'600,
                         {298'160'128, 299'097'088, 300'346'368, 302'844'928}},
                    Size{"130m",
                         184'604'160,
                         146'118'480,
                         804'635'136,
                         {635'466'240, 637'567'488, 640'369'152, 645'972'480}},
                    Size{"350m",
                         438'310'912,
                         301'263'520,
                         2'207'815'680,
                         {1'604'918'784, 1'610'526'720, 1'618'003'968, 1'632'958'464}},
                    Size{"1b",
                         1'489'161'728,
                         942'099'104,
                         8'034'496'512,
                         {5'622'411'168, 5'633'617'536, 5'648'559'360, 5'678'443'008}}),
    [](const auto& instance) { return fmt::format("size_{}", instance.param.name); });

// Persistent bytes per parameter, and with the gradient.
TEST(StorageBytes, Nominal) {
  const auto expect = [](const std::string& name, double persistent, double with_gradient,
                         const std::vector<std::string>& overrides = {}) {
    const StorageBytes bytes = bytes_of_config(name, overrides);
    EXPECT_EQ(bytes.nominal_persistent(), persistent) << name;
    EXPECT_EQ(bytes.nominal_persistent() + bytes.nominal_gradient, with_gradient) << name;
  };
  expect("60m_fp32_adamw", 8, 10,
         {"precision.compute=bf16", "precision.optimizer_state=bf16", "precision.gradient=bf16"});
  expect("60m_bf16", 8, 10);
  expect("60m_fp8", 7, 9);
  expect("60m_bf16_adamw_sr", 6, 8);
  expect("60m_bf16_adamw", 6, 8);
  expect("60m_bf16_adamw_kahan", 8, 10);
  expect("60m_nvfp4", 6.5625, 8.5625);
  expect("60m_bf16_adamw", 8, 10, {"optimizer.weight_rounding=remainder"});
  expect("60m_bf16_adamw", 7, 9, {"optimizer.weight_rounding=ulp_residual"});
  expect("60m_bf16_adamw", 6, 8, {"optimizer.error_feedback=momentum"});
  expect("60m_nvfp4_adamw", 8.5625, 10.5625, {"optimizer.weight_rounding=master"});
}

// Padding is allocated but not counted: 5461 columns are stored as 5472.
TEST(StorageBytes, AllocatedHasThePadding) {
  const StorageBytes bytes = bytes_of_config("1b_bf16");
  EXPECT_EQ(bytes.logical_weights, 2 * int64_t{1'339'082'752});
  EXPECT_EQ(bytes.allocated_weights - bytes.logical_weights, 24 * 3 * 2048 * 11 * 2);
}

}  // namespace
}  // namespace mpt
