// Records of updates in metrics.jsonl (docs/formats.md "A run"): the fields of a tensor, and that
// recording changes no weight.
#include <cmath>

#include <gtest/gtest.h>

#include "config/run_paths.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

class UpdateRecords : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }
  RunConfig config(const std::string& name, std::vector<std::string> more) const {
    more.insert(more.end(), {"train.steps=2", "checkpoint.every_steps=2", "data.validation=[]"});
    return tiny_config(directory_.path(), name, more);
  }
  // Returns the records of the second step, by tensor.
  nlohmann::json recorded(const RunConfig& config) const {
    train(config);
    return read_metrics(posix_file_system(), metrics_path(config))
        .at(2)
        .at("update_survival")
        .at("tensors");
  }

  TempDirectory directory_;
};

TEST_F(UpdateRecords, OfFp32WeightsLoseNothing) {
  const std::vector<std::string> fp32{"precision.weights=fp32", "precision.compute=fp32"};
  std::vector<std::string> counted = fp32;
  counted.emplace_back("log.update_statistics=2");
  const RunConfig with = config("with", counted), without = config("without", fp32);
  const nlohmann::json tensors = recorded(with);
  train(without);
  EXPECT_TRUE(tensors_at(with, 2) == tensors_at(without, 2));
  EXPECT_FALSE(tensors.empty());
  for (const auto& [name, tensor] : tensors.items()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(tensor.at("edq_ratio"), 1.0);
    EXPECT_EQ(tensor.at("effective_rms"), tensor.at("asked_rms").at("both"));
    EXPECT_GT(tensor.at("asked_rms").at("additive"), 0.0);
    EXPECT_GT(tensor.at("asked_rms").at("multiplicative"), 0.0);
    EXPECT_GT(tensor.at("weight_rms"), 0.0);
    EXPECT_LE(tensor.at("flipped"), 1.0);
    EXPECT_FALSE(tensor.contains("with_residuals"));
  }
}

TEST_F(UpdateRecords, TellWhatResidualsKeep) {
  const nlohmann::json tensors =
      recorded(config("kahan", {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null",
                                "optimizer.lr_additive=1e-4", "optimizer.weight_rounding=kahan",
                                "schedule.shape=constant", "log.update_statistics=2"}));
  // Two steps of about 1e-4: residuals below 2^-12 are rounded by 2^-21 at most, less than 2^-6 of
  // a step.
  for (const auto& [name, tensor] : tensors.items()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(tensor.at("asked_rms").size(), 1) << "AdamW has one branch";
    EXPECT_NEAR(tensor.at("with_residuals").at("edq_ratio"), 1.0, 0x1p-6);
    EXPECT_NEAR(tensor.at("with_residuals").at("effective_rms"), tensor.at("asked_rms").at("both"),
                1e-4 * 0x1p-6);
  }
}

// With a rate of 0 no change is requested, so there is no ratio, and no number that is not finite.
TEST_F(UpdateRecords, HaveNoRatioWithoutAnUpdate) {
  const nlohmann::json tensors =
      recorded(config("still", {"optimizer.lr_additive=0", "optimizer.lr_multiplicative=0",
                                "log.update_statistics=2"}));
  for (const auto& [name, tensor] : tensors.items()) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(tensor.at("edq_ratio").is_null());
    EXPECT_FALSE(tensor.contains("edq_ratio_nonfinite"));
    EXPECT_EQ(tensor.at("asked_rms").at("both"), 0.0);
    EXPECT_EQ(tensor.at("flipped"), 0.0);
  }
}

}  // namespace
}  // namespace mpt::test
