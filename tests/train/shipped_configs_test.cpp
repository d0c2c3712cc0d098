// The shipped pico and nano configs train: each ends near its recorded loss.
//
// The text is generated: words of one to five tokens, each of which has likely successors, so that
// a model keeps learning throughout these runs. Hyperparameters and schedule are those of the file.
// shipped_losses.csv holds one loss per config; new ones are written to standard output by
//
//   build/cpu/tests/mpt_train_tests --gtest_filter='*ShippedConfig*'
//
// whose rows "recorded: ..." form that table.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/cautions.h"
#include "config/run_paths.h"
#include "support/draws.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

const std::string kShippedLosses = std::string(MPT_SOURCE_DIR) + "/tests/train/shipped_losses.csv";

// --- text ----------------------------------------------------------------------------------------

// Draws 0 to count - 1, each with a probability inversely proportional to its position.
int64_t zipf(Draws& draws, int64_t count) {
  return int64_t(std::pow(double(count), draws.uniform(0, 1))) - 1;
}

class GeneratedText {
 public:
  explicit GeneratedText(int64_t vocab) : draws_(1) {
    for (std::vector<int32_t>& word : words_)
      for (int64_t left = 1 + draws_.index(5); left > 0; --left)
        word.push_back(int32_t(zipf(draws_, vocab)));
    for (auto& successors : successors_)
      for (int64_t& word : successors) word = zipf(draws_, kWords);
  }

  void write(const std::string& path, int64_t tokens) {
    std::vector<int32_t> ids;
    while (std::ssize(ids) < tokens) {
      next_word();
      ids.insert(ids.end(), words_[size_t(word_)].begin(), words_[size_t(word_)].end());
    }
    ids.resize(size_t(tokens));
    TokenShardWriter writer(path, TokenWidth::kUint16);
    writer.append(ids);
    writer.commit();
  }

 private:
  static constexpr int64_t kWords = 4000, kSuccessors = 12;

  void next_word() {
    const bool follows = draws_.uniform(0, 1) < 0.7;
    word_ = follows ? successors_[size_t(word_)][size_t(zipf(draws_, kSuccessors))]
                    : zipf(draws_, kWords);
  }

  Draws draws_;
  std::vector<std::vector<int32_t>> words_{size_t(kWords)};
  std::vector<std::array<int64_t, size_t(kSuccessors)>> successors_{size_t(kWords)};
  int64_t word_ = 0;
};

// --- runs ----------------------------------------------------------------------------------------

// pico is trained long enough to see error feedback fail. On this text nano does not show that
// within 200 steps; its few steps check whether a config trains at all.
int64_t steps_of(const std::string& config) { return config.starts_with("pico") ? 300 : 50; }

double loss_of(const std::string& name, const std::vector<std::string>& more = {}) {
  const TempDirectory directory{memory_directory()};
  std::vector<std::string> overrides{"output_dir=" + directory / "runs",
                                     "data.train=" + directory / "train.bin",
                                     "data.validation=" + directory / "val.bin",
                                     "data.tokenizer=null",
                                     fmt::format("train.steps={}", steps_of(name)),
                                     "eval.every_steps=0",
                                     "eval.tokens=20000",
                                     "checkpoint.every_steps=0",
                                     "device.type=cpu",
                                     "device.threads=1",
                                     "device.bf16_dot=fma"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const RunConfig config =
      load_run_config(fmt::format("{}/configs/{}.json", MPT_SOURCE_DIR, name), overrides);
  GeneratedText text(config.model.vocab_size);
  text.write(directory / "train.bin", steps_of(name) * config.batch.tokens_per_step + 1);
  text.write(directory / "val.bin", 20001);
  train(config);
  const auto records = read_metrics(posix_file_system(), metrics_path(config));
  const double loss = records.at(steps_of(name)).at("val_loss").get<double>();
  std::cout << fmt::format("recorded: {},{},{:.4f}\n", name, steps_of(name), loss);
  return loss;
}

std::map<std::string, double> recorded_losses() {
  std::map<std::string, double> losses;
  std::ifstream file(kShippedLosses);
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    const size_t first = line.find(','), last = line.rfind(',');
    losses[line.substr(0, first)] = std::stod(line.substr(last + 1));
  }
  return losses;
}

bool is_small(const std::string& name) {
  return name.starts_with("pico_") || name.starts_with("nano_");
}
// Whether it is pico's error feedback, which every change of it must pass; the others run with
// --all.
bool is_fed_back(const std::string& name) {
  return name.starts_with("pico_") && name.ends_with("_eco");
}

std::vector<std::string> shipped(const std::function<bool(const std::string&)>& is_chosen) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(MPT_SOURCE_DIR "/configs"))
    if (entry.is_regular_file() && is_chosen(entry.path().stem()))
      names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

// Another order of sums has no more effect than another seed, and seeds of a study of these models
// differ by 0.02 (docs/results/study/results.md); error feedback that fails ends 0.25 above.
constexpr double kBand = 0.1;

class ShippedConfig : public testing::TestWithParam<std::string> {};

TEST_P(ShippedConfig, TrainsToItsLoss) {
  const double loss = loss_of(GetParam());
  const std::map<std::string, double> recorded = recorded_losses();
  ASSERT_TRUE(recorded.contains(GetParam())) << kShippedLosses << " has no row of it";
  EXPECT_NEAR(loss, recorded.at(GetParam()), kBand);
}

const auto kNameOfConfig = [](const auto& param_info) { return param_info.param; };
INSTANTIATE_TEST_SUITE_P(FedBack, ShippedConfig, testing::ValuesIn(shipped(is_fed_back)),
                         kNameOfConfig);
INSTANTIATE_TEST_SUITE_P(Others, ShippedConfig,
                         testing::ValuesIn(shipped([](const std::string& name) {
                           return is_small(name) && !is_fed_back(name);
                         })),
                         kNameOfConfig);

// The failure that the band must detect: errors of weights rounded to nearest at beta1 = 0.9.
TEST(ShippedConfigs, UnstableFeedbackLiesOutsideOfTheBand) {
  const std::string name = "pico_nvfp4_adamw_eco";
  EXPECT_GT(loss_of(name, {"optimizer.weight_rounding=nearest"}),
            recorded_losses().at(name) + kBand);
}

TEST(ShippedConfigs, NoneIsWarnedOf) {
  for (const std::string& name :
       shipped([](const std::string& stem) { return stem != "schema"; })) {
    const RunConfig config =
        load_run_config(fmt::format("{}/configs/{}.json", MPT_SOURCE_DIR, name));
    EXPECT_EQ(cautions(config), std::vector<std::string>()) << name;
  }
}

}  // namespace
}  // namespace mpt::test
