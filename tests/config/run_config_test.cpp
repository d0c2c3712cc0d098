// Configs: the shipped ones are valid, bad ones are refused with key, file and line, and resolved
// ones read back identically.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/run_config_json.h"
#include "config/run_device.h"
#include "config/usual_spellings.h"
#include "core/io/file_system.h"
#include "core/text/suggestion.h"
#include "optim/rule_list.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"
#include "train/reports/run_report.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

namespace fs = std::filesystem;

const std::string kConfigs = std::string(MPT_SOURCE_DIR) + "/configs/";

class RunConfigTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
    return directory_ / name;
  }
  // Loads the nano config of that name with one more line on top: line 3 of user.json.
  RunConfig load_with(const std::string& line, const std::string& base = "nano_bf16.json") {
    return load_run_config(
        write("user.json", "{\n\"include\": [\"" + kConfigs + base + "\"],\n" + line + "\n}\n"));
  }

  test::TempDirectory directory_;
};

std::vector<std::string> shipped_configs() {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(kConfigs))
    if (entry.is_regular_file() && entry.path().filename() != "schema.json")
      paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  return paths;
}

const std::vector<std::string> kSizes{"60m", "130m", "350m", "1b", "nano", "pico"};

struct Row {
  std::string name;
  WeightFormat weights;
  ComputeFormat compute;
  std::string rule;
  WeightRounding weight_rounding = WeightRounding::kNearest;
  ApolloE apollo_e = ApolloE::kOff;
};

// The main table of the paper, and the combinations that it omits.
std::vector<Row> table_rows() {
  const std::string kAdamW = "adamw", kMadam = "madam", kMPlusAdam = "m_plus_adam";
  constexpr auto k16 = ComputeFormat::kBF16;
  constexpr auto k8 = ComputeFormat::kFp8;
  return {
      {"fp32_adamw", WeightFormat::kF32, ComputeFormat::kF32, kAdamW},
      {"bf16_adamw", WeightFormat::kBF16, k16, kAdamW},
      {"bf16_adamw_kahan", WeightFormat::kBF16, k16, kAdamW, WeightRounding::kKahan},
      {"bf16_adamw_sr", WeightFormat::kBF16, k16, kAdamW, WeightRounding::kStochastic},
      {"bf16", WeightFormat::kBF16, k16, kMPlusAdam},
      {"bf16_fp8_adamw", WeightFormat::kBF16, k8, kAdamW},
      {"bf16_fp8", WeightFormat::kBF16, k8, kMPlusAdam},
      {"fp8_adamw", WeightFormat::kBlockFp8, k8, kAdamW},
      {"fp8", WeightFormat::kBlockFp8, k8, kMPlusAdam},
      {"nvfp4_adamw", WeightFormat::kNvfp4, k8, kAdamW},
      {"nvfp4", WeightFormat::kNvfp4, k8, kMPlusAdam},
      {"bf16_kahan", WeightFormat::kBF16, k16, kMPlusAdam, WeightRounding::kKahan},
      {"bf16_sr", WeightFormat::kBF16, k16, kMPlusAdam, WeightRounding::kStochastic},
      {"bf16_madam", WeightFormat::kBF16, k16, kMadam},
      {"bf16_apollo_e", WeightFormat::kBF16, k16, kMPlusAdam, WeightRounding::kNearest,
       ApolloE::kChannel},
  };
}

TEST_F(RunConfigTest, EverySizeHasEveryRowOfTheTable) {
  for (const std::string& size : kSizes)
    for (const Row& row : table_rows()) {
      const std::string name = fmt::format("{}_{}", size, row.name);
      SCOPED_TRACE(name);
      const RunConfig config = load_run_config(kConfigs + name + ".json");
      EXPECT_EQ(config.precision.weights, row.weights);
      EXPECT_EQ(config.precision.compute, row.compute);
      EXPECT_EQ(rule_name(config.optimizer.rule), row.rule);
      EXPECT_EQ(config.optimizer.weight_rounding, row.weight_rounding);
      const auto projection = projection_options(config.optimizer.rule);
      EXPECT_EQ(projection ? projection->sharing : ApolloE::kOff, row.apollo_e);
      const Format states = row.weights == WeightFormat::kF32 ? Format::kF32 : Format::kBF16;
      EXPECT_EQ(config.precision.optimizer_state, states);
      EXPECT_EQ(config.precision.gradient, states);
      EXPECT_EQ(config.precision.state_rounding, Rounding::kNearest);
      const RunConfig reference = load_run_config(kConfigs + size + "_fp32_adamw.json");
      EXPECT_EQ(config.model, reference.model);
      EXPECT_EQ(config.batch, reference.batch);
      EXPECT_EQ(total_steps(config), total_steps(reference));
    }
}

TEST_F(RunConfigTest, EveryShippedConfigCanBePlanned) {
  for (const std::string& path : shipped_configs()) {
    SCOPED_TRACE(path);
    const RunConfig config = load_run_config(path);
    const std::unique_ptr<Device> device = make_device(config.device);
    EXPECT_NO_THROW((void)(model_report(config) + memory_report(config, *device)));
  }
}

TEST_F(RunConfigTest, APlanTellsOfTheProcessBesideItsBuffers) {
  RunConfig config = load_run_config(shipped_configs().front());
  config.device.type = DeviceType::kCpu;
  const std::unique_ptr<Device> device = make_device(config.device);
  EXPECT_GT(plan_json(config, *device).at("process_bytes").get<int64_t>(), 1 << 20);
  EXPECT_NE(memory_report(config, *device).find("process itself"), std::string::npos);
}

TEST_F(RunConfigTest, APlanListsMemoryByPurposeInOneOrder) {
  const std::vector<std::string> names{
      "weights",     "compute weights", "gradients", "optimizer state",
      "activations", "logits",          "scratch",   "data",
      "total"};
  RunConfig config = load_run_config(shipped_configs().front());
  config.device.type = DeviceType::kCpu;
  const nlohmann::ordered_json plan = plan_json(config, *make_device(config.device));
  std::vector<std::string> found;
  for (const auto& [name, bytes] : plan.at("allocated_bytes").items()) found.push_back(name);
  EXPECT_EQ(found, names);
}

TEST_F(RunConfigTest, EveryShippedConfigIsGoodAndNamedAsItsFile) {
  constexpr size_t kOthers = 19;  // nano_fp32; nine more for nano and pico
  EXPECT_EQ(shipped_configs().size(), kSizes.size() * table_rows().size() + kOthers);
  for (const std::string& path : shipped_configs()) {
    const RunConfig config = load_run_config(path);
    EXPECT_EQ(config.name, fs::path(path).stem().string());
    EXPECT_NO_THROW(require_training_data(config)) << path;
    EXPECT_FALSE(config.data.validation.empty()) << path;
  }
}

TEST_F(RunConfigTest, EveryPieceIsIncludedOrPutsAPaperSettingOnTop) {
  for (const fs::directory_entry& entry : fs::directory_iterator(kConfigs + "base")) {
    const std::string piece = "base/" + entry.path().filename().string();
    EXPECT_NO_THROW(JsonDocument::load(kConfigs + piece));
    if (piece.starts_with("base/paper") || piece == "base/family.json") continue;
    bool used = false;
    for (const std::string& path : shipped_configs()) {
      std::ifstream file(path);
      used |= std::string(std::istreambuf_iterator<char>(file), {}).find('"' + piece + '"') !=
              std::string::npos;
    }
    EXPECT_TRUE(used) << piece;
  }
}

TEST_F(RunConfigTest, PaperPiecesGoOnTopOfARun) {
  const std::string head = "{\"include\": [\"" + kConfigs;
  const auto with = [&](const std::string& run, const std::string& piece) {
    const std::string text =
        head + run + "\", \"" + kConfigs + "base/family.json\", \"" + kConfigs + piece;
    return load_run_config(write("paper.json", text + "\"]}"));
  };
  const RunConfig m_plus_adam = with("60m_bf16.json", "base/paper_m_plus_adam.json");
  EXPECT_EQ(keys_of<MPlusAdam::Config>(m_plus_adam.optimizer.rule).weight_decay_multiplicative_mode,
            MultiplicativeDecay::kExponent);
  EXPECT_EQ(m_plus_adam.batch.rows_per_step(), 512);
  EXPECT_FALSE(m_plus_adam.data.pack);
  EXPECT_EQ(with("60m_bf16_adamw.json", "base/paper_adamw.json").schedule.lr_schedule_offset, -1);
  const PrecisionConfig compute =
      with("60m_bf16_fp8.json", "base/paper_fp8_compute.json").precision;
  EXPECT_EQ(compute.fp8_weight_recast, Cadence::kMicrobatch);
  EXPECT_EQ(compute.fp8_weight_source, Format::kBF16);
  const PrecisionConfig fp8 = with("60m_fp8.json", "base/paper_fp8_weights.json").precision;
  EXPECT_EQ(fp8.fp8_scale_mode, Fp8ScaleMode::kFp16);
  const PrecisionConfig nvfp4 = with("60m_nvfp4.json", "base/paper_nvfp4_weights.json").precision;
  EXPECT_EQ(nvfp4.nvfp4_scale_mode, Nvfp4ScaleMode::kLive);
}

// Each on every run of the table, and one after the other: the last one counts.
TEST_F(RunConfigTest, PaperAndFamilyAreTwoReadingsOfARun) {
  const auto with = [&](const std::string& run, const std::vector<std::string>& pieces,
                        const std::vector<std::string>& overrides = {}) {
    std::string text = "{\"include\": [\"" + kConfigs + run + "\"";
    for (const std::string& piece : pieces) text += ", \"" + kConfigs + "base/" + piece + "\"";
    return load_run_config(write("preset.json", text + "]}"), overrides);
  };
  for (const std::string size : {"60m", "1b", "pico"})
    for (const Row& row : table_rows()) {
      const std::string run = size + "_" + row.name + ".json";
      SCOPED_TRACE(run);
      for (const auto& pieces :
           {std::vector<std::string>{"paper.json"}, {"family.json", "paper.json"}}) {
        const RunConfig paper = with(run, pieces);
        EXPECT_TRUE(paper.data.pack);
        EXPECT_EQ(paper.batch.seq_len, 1024);
        EXPECT_EQ(paper.batch.rows_per_step(), 128);
        EXPECT_EQ(paper.schedule, (ScheduleConfig{.warmup_fraction = 0.1}));
        EXPECT_EQ(paper.optimizer, load_run_config(kConfigs + run).optimizer);
      }
      const RunConfig family = with(run, {"paper.json", "family.json"});
      EXPECT_FALSE(family.data.pack);
      EXPECT_EQ(family.batch.seq_len, 256);
      EXPECT_EQ(family.batch.rows_per_step(), 512);
      EXPECT_EQ(family.schedule,
                (ScheduleConfig{.warmup_fraction = 0.1, .lr_schedule_offset = -1}));
      EXPECT_EQ(galore_batch_rows(family), 256);
      EXPECT_EQ(family.eval.tokens, 182 * 256 * 256);
    }
  // A length other than the piece's: n times 20 tokens for each of the model's parameters,
  // including those of norms.
  const RunConfig twice =
      with("60m_bf16.json", {"family.json"}, {"train.steps=null", "train.chinchilla=2"});
  EXPECT_EQ(total_steps(twice), int64_t{2} * 20 * 58'073'600 / 131'072 + 1);
  EXPECT_EQ(galore_batch_rows(load_run_config(kConfigs + "60m_bf16.json")), 128) << "a step";
  EXPECT_EQ(
      galore_batch_rows(load_run_config(kConfigs + "60m_bf16.json", {"batch.micro_batch_rows=8"})),
      8)
      << "a micro-batch";
  EXPECT_EQ(galore_batch_rows(load_run_config(kConfigs + "pico_bf16.json")), 16) << "a step";
}

TEST_F(RunConfigTest, ParameterCountsAreThePapers) {
  const auto count = [](const std::string& name) {
    return parameter_count(load_run_config(kConfigs + name).model);
  };
  EXPECT_EQ(count("60m_bf16.json"), 58'073'600);
  EXPECT_EQ(count("130m_bf16.json"), 134'105'856);
  EXPECT_EQ(count("350m_bf16.json"), 367'969'280);
  EXPECT_EQ(count("1b_bf16.json"), 1'339'082'752);
  EXPECT_EQ(count("nano_bf16.json"), 1'840'256);
  EXPECT_EQ(count("pico_bf16.json"), 166'208);
}

TEST_F(RunConfigTest, ShippedConfigsHoldThePapersSettings) {
  const RunConfig config = load_run_config(kConfigs + "350m_bf16.json");
  EXPECT_EQ(rule_name(config.optimizer.rule), "m_plus_adam");
  EXPECT_EQ(keys_of<MPlusAdam::Config>(config.optimizer.rule).lr_additive, 1e-3);
  EXPECT_EQ(keys_of<MPlusAdam::Config>(config.optimizer.rule).lr_multiplicative, 1e-4);
  EXPECT_EQ(config.precision.weights, WeightFormat::kBF16);
  EXPECT_EQ(total_steps(config), 60'000);
  EXPECT_EQ(config.batch.rows_per_step(), 128);
  EXPECT_EQ(config.schedule.warmup_updates(total_steps(config)), 6'000);
  const RunConfig reference = load_run_config(kConfigs + "350m_fp32_adamw.json");
  EXPECT_EQ(reference.precision.optimizer_state, Format::kF32);
  EXPECT_EQ(rule_name(reference.optimizer.rule), "adamw");
}

TEST_F(RunConfigTest, ShippedConfigsLeaveTheRowsOfAMicroBatchToTheDevice) {
  for (const std::string& path : shipped_configs())
    EXPECT_EQ(load_run_config(path).batch.micro_batch_rows, 0) << path;
  for (const fs::directory_entry& piece : fs::directory_iterator(kConfigs + "base"))
    EXPECT_EQ(JsonDocument::load(piece.path().string()).root().dump().find("micro_batch_rows"),
              std::string::npos)
        << piece.path();
}

TEST_F(RunConfigTest, TheResolvedConfigReadsBackEqual) {
  for (const std::string& path : shipped_configs()) {
    const RunConfig config =
        load_run_config(path, {"optimizer.beta2=0.98765432109876543", "seed=18446744073709551615"});
    const Json resolved = resolved_json(config);
    EXPECT_EQ(load_run_config(write("resolved.json", resolved.dump(2))), config) << path;
    EXPECT_EQ(resolved_json(parse_run_config(JsonDocument::of_value(resolved, "state.json"))),
              resolved);
    EXPECT_NO_THROW(validate(config));
  }
}

TEST_F(RunConfigTest, TheResolvedConfigNamesTheDefaultWarmup) {
  EXPECT_EQ(load_with("\"seed\": 2").schedule.warmup_fraction, 0.1);
  const RunConfig steps = load_with("\"schedule\": {\"warmup_steps\": 7}");
  EXPECT_EQ(steps.schedule.warmup_fraction, std::nullopt);
  EXPECT_EQ(steps.schedule.warmup_updates(total_steps(steps)), 7);
}

// Keys of the rule chosen by a base do not prevent another rule; the user's own do.
TEST_F(RunConfigTest, AnotherRuleOverABase) {
  const test::CapturedLog log(spdlog::level::info);
  const RunConfig madam =
      load_run_config(kConfigs + "nano_bf16_adamw.json",
                      {"optimizer.rule=madam", "optimizer.lr_multiplicative=1e-3"});
  EXPECT_EQ(rule_name(madam.optimizer.rule), "madam");
  EXPECT_NE(log.text().find("ignored, because madam has no such key: optimizer.lr_additive ("),
            std::string::npos)
      << log.text();
  EXPECT_NE(log.text().find("base/adamw.json:"), std::string::npos) << log.text();
  const RunConfig adamw = load_run_config(kConfigs + "nano_bf16.json", {"optimizer.rule=adamw"});
  EXPECT_EQ(additive_of(adamw.optimizer.rule)->lr_additive, 4e-3);
  EXPECT_ERROR(load_run_config(kConfigs + "nano_bf16_adamw.json",
                               {"optimizer.rule=madam", "optimizer.lr_multiplicative=1e-3",
                                "optimizer.eps=1e-9"}),
               "--set optimizer.eps=1e-9: optimizer.eps: requires optimizer.rule = adamw or ",
               "but optimizer.rule is madam (--set optimizer.rule=madam)");
}

TEST_F(RunConfigTest, SettingsOfEveryType) {
  const RunConfig config = load_run_config(
      kConfigs + "nano_bf16.json",
      {"name=my run", "seed=5", "data.pack=false", "data.train=data/one.bin",
       "data.validation=[\"a\", \"b\"]", "batch.micro_batch_rows=8", "optimizer.lr_additive=1e-3",
       "schedule.shape=wsd", "schedule.warmup_steps=1e1", "train.steps=null",
       "train.chinchilla=0.5", "train={\"nonfinite_policy\": \"skip_step\"}"});
  EXPECT_EQ(config.name, "my run");
  EXPECT_EQ(config.seed, 5u);
  EXPECT_FALSE(config.data.pack);
  EXPECT_EQ(config.data.train, std::vector{CorpusConfig::of_texts({"data/one.bin"})});
  EXPECT_EQ(config.data.validation, (NamedTexts{{"", {"a", "b"}}}));
  EXPECT_EQ(config.batch.micro_batches(), 2);
  EXPECT_EQ(additive_of(config.optimizer.rule)->lr_additive, 1e-3);
  EXPECT_EQ(config.schedule.shape, ScheduleShape::kWsd);
  EXPECT_EQ(config.schedule.warmup_steps, 10);
  EXPECT_EQ(config.train.chinchilla, 0.5);
  EXPECT_EQ(config.train.nonfinite_policy, NonfinitePolicy::kSkipStep);
}

// Corpora by weight and validation sets by name; once written, they read back identically.
TEST_F(RunConfigTest, CorporaAndValidationSetsMayHaveNames) {
  const RunConfig config = load_run_config(
      kConfigs + "nano_bf16.json",
      {R"(data.train=[{"name":"web","files":["a","b"],"weight":3},{"name":"books","files":"c","weight":1}])",
       R"(data.phases=[{"from":0.9,"weights":{"books":1,"web":0}}])",
       R"(data.validation={"c4":["d","e"],"books":"f"})"});
  EXPECT_EQ(config.data.train,
            (std::vector<CorpusConfig>{{"web", {"a", "b"}, 3}, {"books", {"c"}, 1}}));
  EXPECT_EQ(config.data.phases,
            (std::vector<MixturePhaseConfig>{{0.9, {{"books", 1}, {"web", 0}}}}));
  EXPECT_EQ(config.data.validation, (NamedTexts{{"c4", {"d", "e"}}, {"books", {"f"}}}));
  EXPECT_EQ(config.data.all_files(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f"}));
  EXPECT_EQ(parse_run_config(JsonDocument::of_value(resolved_json(config), "again")), config);
}

TEST_F(RunConfigTest, PhasesHaveTheSectionsOfTheRunWhereTheyGiveNone) {
  const RunConfig config = load_with(
      R"("optimizer": {"rule": "adamw", "lr_additive": 3e-3, "lr_multiplicative": null},
         "phases": [{"until": 0.5}, {"until": 0.9, "optimizer": {"rule": "lion", "lr_additive": 1}},
                    {"until": 1, "precision": {"weights": "fp32", "compute": "fp32"}}])");
  EXPECT_EQ(parse_run_config(JsonDocument::of_value(resolved_json(config), "resolved")), config);
  const std::vector<RunPhase> phases = run_phases(config);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0].config.optimizer, config.optimizer);
  EXPECT_EQ(rule_name(phases[1].config.optimizer.rule), "lion");
  EXPECT_EQ(phases[1].config.precision, config.precision);
  EXPECT_EQ(phases[2].config.precision.weights, WeightFormat::kF32);
  EXPECT_EQ(phases[2].config.optimizer, config.optimizer);
  for (const auto& [first, last, number] :
       {std::tuple{0, 500, 0u}, {500, 900, 1u}, {900, 1000, 2u}}) {
    EXPECT_EQ(phases[number].first_step, first);
    EXPECT_EQ(phases[number].last_step, last);
    for (const int64_t done : {first, last - 1}) EXPECT_EQ(phase_after(phases, done), number);
    // A phase's config is a config of the same run.
    EXPECT_EQ(run_phases(phases[number].config)[number].config, phases[number].config);
  }
  EXPECT_EQ(phase_after(phases, 1000), 2u);
}

// Each phase has a copy of the sections that it omits.
TEST_F(RunConfigTest, PhasesDoNotFillTheMemory) {
  const auto load_phases = [&](int64_t count, const std::string& rule) {
    std::string phases = R"({"until": 0.5})";
    for (int64_t i = 1; i < count; ++i) phases += ",{}";
    return load_with(fmt::format(R"("optimizer": {{"rule": "{}"}}, "phases": [{}])", rule, phases));
  };
  EXPECT_ERROR(load_phases(101, "adamw"), "phases has 101 elements; at most 100 are accepted");
  EXPECT_ERROR(load_phases(100, std::string(500'000, 'x')),
               "phases has 100 elements that inherit 50", "of optimizer; at most 41943 bytes");
  // Also in the names of keys, which each has, and if the run has no such section.
  const std::string deep = fmt::format(R"({{"{}": {{)", std::string(900, 'k'));
  std::string keys;
  for (int i = 0; i < 5000; ++i) keys += fmt::format("{}\"k{}\": 0", i ? ", " : "", i);
  EXPECT_ERROR(load_with(R"("optimizer": )" + deep + keys + R"(}}, "phases": [{}, {}])"),
               "phases has 2 elements that inherit", "of optimizer");
  std::string many = "{}";
  for (int i = 1; i < 200'000; ++i) many += ",{}";
  const std::string path = write("alone.json", R"({"phases": [)" + many + "]}");
  EXPECT_ERROR(load_run_config(path), "phases has 200000 elements; at most 100 are accepted");
}

// Included files count too, each time.
TEST_F(RunConfigTest, AllFilesTogetherHaveALimitOfKeys) {
  std::string keys, files;
  for (int i = 0; i < 1000; ++i) keys += fmt::format("{}\"k{}\": 0", i ? ", " : "", i);
  const std::string included = write("keys.json", "{" + keys + "}");
  for (int i = 0; i < 11; ++i) files += fmt::format("{}\"{}\"", i ? ", " : "", included);
  EXPECT_ERROR(load_run_config(write("all.json", R"({"include": [)" + files + "]}")),
               "keys.json: more than 10000 keys");
}

// Each is compared with all existing ones, which takes long for ten thousand.
TEST_F(RunConfigTest, VeryManyFaultsAreNotAllLookedFor) {
  std::string keys;
  for (int i = 0; i < 9000; ++i) keys += fmt::format("{}\"k{}\": 0", i ? ", " : "", i);
  EXPECT_ERROR(load_with(keys), "k19: unknown key", "... and 80 more");
}

// Untrusted texts may have as many keys as a file.
TEST_F(RunConfigTest, ConfigsInCheckpointsHaveTheLimitsOfFiles) {
  Json value = Json::object();
  for (int64_t i = 0; i <= kMaxJsonKeys; ++i) value[fmt::format("k{}", i)] = i;
  EXPECT_ERROR(JsonDocument::of_value(value, "state.json"), "state.json", "10000 keys");
}

TEST_F(RunConfigTest, AGrowingBatchTakesAsManyTokens) {
  const RunConfig config = load_with(
      R"("train": {"steps": null, "tokens": 3000000},
         "phases": [{"until": 0.5, "batch": {"seq_len": 256, "tokens_per_step": 2048}}, {"until": 1}])");
  EXPECT_EQ(total_steps(config), 977);  // 3,000,000 / 3072 = 976.6
  EXPECT_EQ(rows_of_steps(config, 10), 10 * 8);
  EXPECT_EQ(rows_of_steps(config, 489), 489 * 8);  // of 488.5
  EXPECT_EQ(rows_of_steps(config, 500), 489 * 8 + 11 * 16);
  EXPECT_EQ(total_tokens(config), (489 * 8 + 488 * 16) * 256);
}

TEST_F(RunConfigTest, LengthsAreRoundedUpToWholeSteps) {
  const auto steps = [&](const std::string& length) {
    return total_steps(load_with("\"train\": {\"steps\": null, " + length + "}"));
  };
  EXPECT_EQ(steps("\"tokens\": 1"), 1);
  EXPECT_EQ(steps("\"tokens\": 4096"), 1);
  EXPECT_EQ(steps("\"tokens\": 4097"), 2);
  EXPECT_EQ(steps("\"chinchilla\": 1"), (20 * 1'840'256 + 4095) / 4096);
  EXPECT_EQ(steps("\"chinchilla\": 1e-9"), 1);
  EXPECT_EQ(total_steps(load_with("\"train\": {\"steps\": 3}")), 3);
}

TEST_F(RunConfigTest, WarmupIsRoundedAndBounded) {
  ScheduleConfig schedule;
  EXPECT_EQ(schedule.warmup_updates(1), 0);
  EXPECT_EQ(schedule.warmup_updates(5), 1);
  EXPECT_EQ(schedule.warmup_updates(10'000), 1'000);
  EXPECT_EQ(schedule.decay_updates(10), 2);
  EXPECT_EQ(load_with("\"schedule\": {\"warmup_steps\": 1000}").schedule.warmup_steps, 1000);
}

TEST_F(RunConfigTest, TheSchemaInTheRepositoryIsThatOfTheProgram) {
  std::ifstream file(kConfigs + "schema.json", std::ios::binary);
  const std::string committed(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(committed, schema_text()) << "run: mpretrain schema > configs/schema.json";
}

struct BadConfig {
  const char* line;                // line 3 of user.json
  std::vector<std::string> parts;  // of the message
  const char* base = "nano_bf16.json";
};

const BadConfig kBadConfigs[] = {
    // unknown keys
    {R"("model": {"hiden_size": 1})",
     {"user.json:3: model.hiden_size: unknown key", "\"hidden_size\"?"}},
    {R"("lr_additive": 1)",
     {"user.json:3: lr_additive: unknown key", "\"optimizer.lr_additive\"?"}},
    {R"("optimiser": {})", {"user.json:3: optimiser: unknown key", "\"optimizer\"?"}},
    {R"("train": {"stpes": null})", {"user.json:3: train.stpes: unknown key", "\"steps\"?"}},
    {R"("qwertyuiop": 1)", {"qwertyuiop: unknown key; the nearest of the 16 keys here: "}},
    {R"("data": {"include": []})", {"user.json:3: data.include: unknown key"}},
    // wrong types
    {R"("seed": "one")", {"user.json:3: seed: expected an integer", "\"one\""}},
    {R"("seed": -1)", {"user.json:3: seed: must be at least 0"}},
    {R"("name": 5)", {"user.json:3: name: expected a string"}},
    {R"("model": [])", {"user.json:3: model: expected a section"}},
    {R"("model": {"hidden_size": 128.5})",
     {"user.json:3: model.hidden_size: expected an integer", "128.5"}},
    {R"("data": {"shuffle": 1})", {"user.json:3: data.shuffle: expected true or false"}},
    {R"("data": {"train": [1]})", {"user.json:3: data.train: expected a list of strings"}},
    {R"("data": {"train": [{"name": "a"}]})",
     {"user.json:3: data.train.0.files: missing", "data.train.0.weight: missing"}},
    {R"("data": {"train": [{"name": "a", "files": "b", "wieght": 1}]})",
     {"user.json:3: data.train.0.wieght: unknown key; did you mean \"weight\"?"}},
    {R"("data": {"train": ["a", {"name": "b", "files": "c", "weight": 1}]})",
     {"data.train: expected a list of strings or a list of objects"}},
    {R"("data": {"validation": {"a": 3}})",
     {"user.json:3: data.validation: expected a list of strings, or an object of such lists"}},
    {R"("data": {"phases": [{"from": 1, "weights": {"a": 1}}]})",
     {"data.phases.0.from: must be greater than 0 and less than 1, found 1"}},
    {R"("data": {"phases": [{"from": 0.5, "weights": 3}]})",
     {"data.phases.0.weights: expected an object of numbers by name"}},
    {R"("optimizer": {"eps": "1e-8"})", {"user.json:3: optimizer.eps: expected a number"}},
    {R"("optimizer": {"rule": "adam"})",
     {"user.json:3: optimizer.rule: expected one of adamw, additive_twin, lion, madam, "
      "m_plus_adam"}},
    {R"("optimizer": {"weight_rounding": "up"})",
     {"user.json:3: optimizer.weight_rounding: expected one of nearest, stochastic, kahan, "
      "remainder, ulp_residual, master"}},
    {R"("precision": {"weights": "fp8"})",
     {"user.json:3: precision.weights: expected one of fp32, bf16, block_fp8, nvfp4, mxfp8"}},
    {R"("precision": {"compute": "fp4"})",
     {"user.json:3: precision.compute: expected one of fp32, bf16, fp8"}},
    {R"("device": {"type": "tpu"})", {"user.json:3: device.type: expected one of auto, cpu, cuda"}},
    {R"("schedule": {"shape": "step"})",
     {"schedule.shape: expected one of cosine, linear, constant, wsd"}},
    // ranges
    {R"("model": {"num_hidden_layers": 0})",
     {"model.num_hidden_layers: must be at least 1", "found 0"}},
    {R"("model": {"vocab_size": -4096})", {"user.json:3: model.vocab_size: must be at least 2"}},
    {R"("model": {"intermediate_size": 1e15})",
     {"model.intermediate_size: must be", "at most 1048576"}},
    {R"("optimizer": {"eps": 0})",
     {"user.json:3: optimizer.eps: must be at least 1e-37", "found 0"}},
    {R"("optimizer": {"eps": 1e999})", {"user.json:3:", "number overflow"}},
    {R"("optimizer": {"tau": -1})", {"optimizer.tau: must be at least"}},
    {R"("optimizer": {"beta2": 1.0})",
     {"optimizer.beta2: must be at least 0 and at most 0.9999999"}},
    {R"("optimizer": {"clip_relative_step": 2})",
     {"clip_relative_step: must be at least 0 and at most 1"}},
    {R"("optimizer": {"clip_relative_step": 1e-7})",
     {"clip_relative_step: must be 0 (off) or greater than 1e-06"}},
    {R"("optimizer": {"lr_additive": -1e-3})",
     {"optimizer.lr_additive: must be at least 0", "-0.001"}},
    {R"("schedule": {"warmup_fraction": 1.5})",
     {"schedule.warmup_fraction: must be at least 0 and at most 1"}},
    {R"("schedule": {"lr_schedule_offset": 1})",
     {"lr_schedule_offset: must be at least -1 and at most 0"}},
    {R"("train": {"steps": 0})", {"user.json:3: train.steps: must be at least 1"}},
    {R"("eval": {"tokens": 0})", {"user.json:3: eval.tokens: must be at least 1"}},
    {R"("eval": {"samples_every": 5, "sample_prompts": []})",
     {"user.json:3: eval.samples_every: needs texts to continue in eval.sample_prompts"}},
    {R"("eval": {"sample_tokens": 0})", {"user.json:3: eval.sample_tokens: must be at least 1"}},
    {R"("eval": {"sample_prompts": [3]})", {"user.json:3: eval.sample_prompts"}},
    {R"("eval": {"galore_batch_rows": -1})",
     {"user.json:3: eval.galore_batch_rows: must be at least 0"}},
    {R"("checkpoint": {"keep_last": 0})", {"checkpoint.keep_last: must be at least 1"}},
    {R"("log": {"every_steps": 0})", {"log.every_steps: must be at least 1"}},
    {R"("device": {"threads": -1})", {"device.threads: must be at least 0"}},
    // missing keys
    {R"("model": {"hidden_size": null})",
     {"user.json:3: model.hidden_size: missing; it is required"}},
    {R"("optimizer": null)", {"user.json:3: optimizer.rule: missing; it is required"}},
    {R"("optimizer": {"lr_multiplicative": null})",
     {"lr_multiplicative: missing; it is required by optimizer.rule = m_plus_adam"}},
    {R"("name": null)", {"user.json:3: name: missing"}},
    // keys that do not go together
    {R"("name": "")", {"user.json:3: name: must not be empty"}},
    {R"("name": "../x")", {"name: must not be empty, contain '/'", "\"../x\""}},
    {R"("name": ".hidden")", {"name: must not be empty, contain '/' or start with '.'"}},
    {R"("output_dir": "")", {"output_dir: must not be empty"}},
    {R"("model": {"num_attention_heads": 3})",
     {"model.hidden_size: 128 is not divisible by model.num_attention_heads = 3", "user.json:3"}},
    {R"("model": {"num_attention_heads": 128})",
     {"user.json:3: model.num_attention_heads:", "128 / 128 = 1"}},
    {R"("model": {"num_key_value_heads": 3})",
     {"user.json:3: model.num_key_value_heads: 3 does not divide model.num_attention_heads = 2"}},
    {R"("model": {"head_dim": 7})", {"user.json:3: model.head_dim: heads of 7 elements", "even"}},
    {R"("model": {"rope_scaling": {"factor": 2}})",
     {"user.json:3: model.rope_scaling.factor: requires model.rope_scaling.rope_type = linear or "
      "llama3"}},
    {R"("model": {"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 5}})",
     {"user.json:3: model.rope_scaling.high_freq_factor: must be greater than "
      "model.rope_scaling.low_freq_factor = 5"}},
    {R"("model": {"rope_scaling": {"rope_type": "yarn"}})",
     {"user.json:3: model.rope_scaling.rope_type:", "default, linear, llama3"}},
    {R"("model": {"head_dim": 20}, "precision": {"compute": "fp8"})",
     {"user.json:3: model.head_dim: 2 query heads of 20 elements are 40 wide, and 40 is not a "
      "multiple of 16"}},
    {R"("batch": {"seq_len": 100})",
     {"batch.tokens_per_step: 4096 is not a multiple of batch.seq_len = 100", "user.json:3",
      "base/nano.json:"}},
    {R"("batch": {"micro_batch_rows": 3})",
     {"user.json:3: batch.micro_batch_rows: 3 does not divide the 16 rows"}},
    {R"("batch": {"micro_batch_rows": 32})",
     {"batch.micro_batch_rows: 32 does not divide the 16 rows"}},
    {R"("precision": {"fp8_block_size": 48})",
     {"user.json:3: precision.fp8_block_size: must be 16, 32, 64, 128 or 256, found 48"},
     "nano_fp8.json"},
    {R"("precision": {"state_update": "per_op", "state_rounding": "stochastic"})",
     {"user.json:3: precision.state_rounding: stochastic cannot be combined with "
      "precision.state_update = per_op"}},
    {R"("model": {"hidden_size": 136})",
     {"user.json:3: model.hidden_size: 136 is not a multiple of 16, which precision.compute = fp8 "
      "(",
      "base/fp8.json:"},
     "nano_fp8.json"},
    {R"("model": {"pad_multiple": 8})",
     {"user.json:3: model.pad_multiple: rounds model.intermediate_size = 344 to 344, and 344 is "
      "not a multiple"},
     "nano_bf16_fp8.json"},
    {R"("batch": {"seq_len": 8})",
     {"user.json:3: batch.seq_len: 8 is not a multiple of 16"},
     "nano_fp8.json"},
    {R"("model": {"vocab_size": 4097}, "precision": {"fp8_lm_head": true})",
     {"user.json:3: model.vocab_size: 4097 is not a multiple of 16"},
     "nano_fp8.json"},
    {R"("optimizer": {"weight_rounding": "kahan"})",
     {"user.json:3: optimizer.weight_rounding: kahan cannot be combined with precision.weights = "
      "block_fp8 (",
      "base/fp8.json:", "accepted: bf16"},
     "nano_fp8.json"},
    {R"("optimizer": {"weight_rounding": "ulp_residual"})",
     {"user.json:3: optimizer.weight_rounding: ulp_residual cannot be combined with "
      "precision.weights = nvfp4",
      "accepted: bf16"},
     "nano_nvfp4.json"},
    {R"("optimizer": {"weight_rounding": "master"})",
     {"user.json:3: optimizer.weight_rounding: master cannot be combined with precision.weights = "
      "fp32"},
     "nano_fp32_adamw.json"},
    {R"("optimizer": {"error_feedback": "momentum"})",
     {"user.json:3: optimizer.error_feedback: momentum cannot be combined with optimizer.rule = "
      "madam",
      "accepted: adamw, additive_twin, m_plus_adam"},
     "nano_bf16_madam.json"},
    {R"("optimizer": {"error_feedback": "momentum", "beta1": 0})",
     {"user.json:3: optimizer.error_feedback: momentum requires optimizer.beta1 > 0"}},
    {R"("optimizer": {"error_feedback": "momentum", "nvfp4_additive_scale": "block"})",
     {"user.json:3: optimizer.error_feedback: momentum cannot be combined with "
      "optimizer.nvfp4_additive_scale = block"},
     "nano_nvfp4.json"},
    {R"("optimizer": {"error_feedback": "momentum"})",
     {"user.json:3: optimizer.error_feedback: requires optimizer.weight_rounding = nearest"},
     "nano_bf16_kahan.json"},
    {R"("data": {"pack": false, "packing": "best_fit"})",
     {"user.json:3: data.packing: best_fit cannot be combined with data.pack = false (",
      "accepted: stream"}},
    {R"("data": {"pack": false, "attention": "document"})",
     {"user.json:3: data.attention: document cannot be combined with data.pack = false (",
      "accepted: row"}},
    {R"("optimizer": {"kahan_variant": "per_op"})",
     {"user.json:3: optimizer.kahan_variant: per_op cannot be combined with optimizer.rule = "
      "m_plus_adam"},
     "nano_bf16_kahan.json"},
    {R"("optimizer": {"g_bound": 30})",
     {"optimizer.lr_multiplicative: 0.01 times optimizer.g_bound = 30 (", "user.json:3) is 0.3"},
     "nano_bf16_madam.json"},
    {R"("optimizer": {"apollo_e_rank": 200})",
     {"user.json:3: optimizer.apollo_e_rank: 200 is more than the smallest side of a linear layer, "
      "128"},
     "nano_bf16_apollo_e.json"},
    {R"("optimizer": {"apollo_e_rank": 100}, "model": {"num_key_value_heads": 1})",
     {"optimizer.apollo_e_rank: 100 is more than the smallest side of a linear layer, 64"},
     "nano_bf16_apollo_e.json"},
    // keys that have no effect because of another's value
    {R"("precision": {"fp8_history": 16})",
     {"user.json:3: precision.fp8_history: requires precision.compute = fp8",
      "precision.compute is bf16", "base/bf16.json:"}},
    {R"("precision": {"fp8_recipe": "current", "fp8_history": 16})",
     {"precision.fp8_history: requires precision.fp8_recipe = delayed",
      "precision.fp8_recipe is current (", "user.json:3"},
     "nano_fp8.json"},
    {R"("precision": {"fp8_fast_accum_fprop": false})",
     {"user.json:3: precision.fp8_fast_accum_fprop: requires precision.compute = fp8"}},
    {R"("precision": {"compute": "tf32"}, "device": {"type": "cpu"})",
     {"user.json:3: precision.compute: tf32 is not available on the CPU (device.type = cpu (",
      "set precision.compute to fp32"},
     "nano_fp32.json"},
    {R"("precision": {"fp8_lm_head": true})",
     {"precision.fp8_lm_head: requires precision.compute = fp8"}},
    {R"("precision": {"fp8_block_size": 64})",
     {"precision.fp8_block_size: requires precision.weights = block_fp8"},
     "nano_bf16_fp8.json"},
    {R"("precision": {"fp8_scale_mode": "fp16"})",
     {"precision.fp8_scale_mode: requires precision.weights = block_fp8",
      "precision.weights is nvfp4"},
     "nano_nvfp4.json"},
    {R"("precision": {"nvfp4_scale_mode": "live"})",
     {"precision.nvfp4_scale_mode: requires precision.weights = nvfp4"},
     "nano_fp8.json"},
    {R"("optimizer": {"nvfp4_additive_scale": "block"})",
     {"user.json:3: optimizer.nvfp4_additive_scale: block requires precision.weights = nvfp4",
      "precision.weights is block_fp8 (", "base/fp8.json:"},
     "nano_fp8.json"},
    {R"("optimizer": {"nvfp4_additive_scale": "block"})",
     {"user.json:3: optimizer.nvfp4_additive_scale: requires optimizer.rule = adamw or "
      "additive_twin or lion or "
      "m_plus_adam"},
     "nano_bf16_madam.json"},
    {R"("optimizer": {"nvfp4_additive_scale": "row"})",
     {"user.json:3: optimizer.nvfp4_additive_scale: expected one of off, block"},
     "nano_nvfp4.json"},
    {R"("precision": {"state_rounding": "stochastic"})",
     {"precision.state_rounding: requires precision.optimizer_state = bf16"},
     "nano_fp32.json"},
    {R"("optimizer": {"kahan_variant": "fused"})",
     {"user.json:3: optimizer.kahan_variant: requires optimizer.weight_rounding = kahan"}},
    {R"("optimizer": {"sr_saturate": true})",
     {"user.json:3: optimizer.sr_saturate: requires optimizer.weight_rounding = stochastic"}},
    {R"("optimizer": {"apollo_e_rank": 1})",
     {"user.json:3: optimizer.apollo_e_rank: requires optimizer.apollo_e = mini or channel",
      "optimizer.apollo_e is off"}},
    {R"("optimizer": {"apollo_e": "mini"})",
     {"optimizer.apollo_e: requires optimizer.rule = m_plus_adam"},
     "nano_bf16_adamw.json"},
    {R"("optimizer": {"apollo_e_gap": 100})",
     {"optimizer.apollo_e_gap: requires optimizer.rule = m_plus_adam"},
     "nano_bf16_adamw.json"},
    {R"("optimizer": {"p_scale": 2})",
     {"user.json:3: optimizer.p_scale: requires optimizer.rule = madam",
      "optimizer.rule is m_plus_adam"}},
    {R"("optimizer": {"g_bound": 5})",
     {"user.json:3: optimizer.g_bound: requires optimizer.rule = madam"},
     "nano_bf16_adamw.json"},
    {R"("optimizer": {"lr_additive": 1e-3})",
     {"optimizer.lr_additive: requires optimizer.rule = adamw or additive_twin or lion or "
      "m_plus_adam",
      "optimizer.rule is madam"},
     "nano_bf16_madam.json"},
    {R"("optimizer": {"eps": 1e-8})",
     {"optimizer.eps: requires optimizer.rule = adamw or additive_twin or m_plus_adam"},
     "nano_bf16_madam.json"},
    {R"("optimizer": {"tau": 1e-8})",
     {"user.json:3: optimizer.tau: requires optimizer.rule = m_plus_adam",
      "optimizer.rule is adamw", "base/adamw.json:"},
     "nano_bf16_adamw.json"},
    {R"("optimizer": {"rule": "adamw", "lr_multiplicative": 1e-3})",
     {"optimizer.lr_multiplicative: requires optimizer.rule = madam or m_plus_adam",
      "user.json:3"}},
    {R"("device": {"cuda_attention": "gemms", "deterministic_attention": false})",
     {"user.json:3: device.deterministic_attention: requires device.cuda_attention = auto or cudnn",
      "device.cuda_attention is gemms"}},
    {R"("schedule": {"decay_fraction": 0.1})",
     {"user.json:3: schedule.decay_fraction: requires schedule.shape = wsd"}},
    {R"("schedule": {"shape": "constant", "final_fraction": 0.1})",
     {"schedule.final_fraction: requires schedule.shape = cosine or linear or wsd"}},
    {R"("schedule": {"warmup_steps": 1, "warmup_fraction": 0.1})",
     {"user.json:3: schedule.warmup_steps: cannot be combined with schedule.warmup_fraction"}},
    {R"("phases": [{"until": 0.5}, {"until": 0.8}])",
     {"user.json:3: phases: the last one ends with until = 0.8, not with the run; expected 1"}},
    {R"("phases": [{"until": 0.5}, {"until": 0.5}, {"until": 1}])",
     {"user.json:3: phases: a phase ends with step", "not after the one before it"}},
    {R"("phases": [{"precision": {"weights": "fp32"}}])", {"user.json:3: phases.0.until: missing"}},
    {R"("phases": [{"until": 2}])", {"phases.0.until: must be greater than 0 and at most 1"}},
    {R"("phases": [{"until": 1, "model": {}}])", {"phases.0.model: unknown key"}},
    {R"("phases": [{"until": 1, "batch": {"seq_len": 8, "tokens_per_step": 64}}])",
     {"user.json:3: phases.0.batch.seq_len: 8 is not batch.seq_len = "}},
    {R"("phases": [{"until": 1, "batch": {"seq_len": 256, "tokens_per_step": 1000}}])",
     {"phases.0.batch.tokens_per_step: 1000 is not a multiple of batch.seq_len = 256"}},
    {R"("phases": [{"until": 1, "precision": {"weights": "nvfp4"}}])",
     {"phases.0.optimizer.weight_rounding: kahan cannot be combined with precision.weights = "
      "nvfp4 (",
      "user.json:3"},
     "nano_bf16_kahan.json"},
    {R"("phases": [{"until": 1, "optimizer": {"rule": "adamw", "lr_additive": 1e-3, "tau": 1}}])",
     {"user.json:3: phases.0.optimizer.tau: requires phases.0.optimizer.rule = m_plus_adam"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 1}, {"name": "a", "files": "x", "weight": 1}]})",
     {"user.json:3: data.train: two corpora are named a"}},
    {R"("data": {"train": [{"name": "a b", "files": "x", "weight": 1}]})",
     {"data.train: names may hold letters", "found \"a b\""}},
    {R"("data": {"train": [{"name": "a", "files": [], "weight": 1}]})",
     {"data.train: a has no files"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 0}]})",
     {"data.train: the weights add up to 0"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 1}, {"name": "b", "files": "x", "weight": 1e-5}]})",
     {"data.train: the weight of b is 1e-05", "less than one row in 1000"}},
    {R"("data": {"train": "x", "phases": [{"from": 0.5, "weights": {"a": 1}}]})",
     {"data.phases: data.train (", "user.json:3) has no named corpora"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 1}, {"name": "b", "files": "x", "weight": 1}], "phases": [{"from": 0.5, "weights": {"a": 1}}]})",
     {"data.phases: from = 0.5 gives no weight to b; 0 leaves it out"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 1}], "phases": [{"from": 0.5, "weights": {"a": 1, "c": 2}}]})",
     {"data.phases: from = 0.5 gives a weight to c, which is not in data.train"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 1}], "phases": [{"from": 0.5, "weights": {"a": 1}}, {"from": 0.5, "weights": {"a": 1}}]})",
     {"data.phases: from = 0.5 begins after step", "not after the one before"}},
    {R"("data": {"train": [{"name": "a", "files": "x", "weight": 1}], "phases": [{"from": 0.9999, "weights": {"a": 1}}]})",
     {"data.phases: from = 0.9999 begins after the last of the 1000 steps"}},
    {R"("data": {"validation": {"a": []}})", {"data.validation: a has no files"}},
    {R"("data": {"validation": {"": "x", "b": "y"}})", {"data.validation: names may hold letters"}},
    {R"("schedule": {"warmup_steps": 1001})",
     {"schedule.warmup_steps: 1001 is more than the 1000 steps"}},
    {R"("schedule": {"shape": "wsd", "warmup_fraction": 0.5, "decay_fraction": 0.6})",
     {"user.json:3: schedule.decay_fraction: 0.6 of 1000 steps is 600 steps of decay; with 500 of "
      "warmup"}},
    {R"("data": {"train": [{"name": "", "files": "x", "weight": 1}, {"name": "b", "files": "y", "weight": 1}]})",
     {"user.json:3: data.train: names may hold letters"}},
    {R"("train": {"tokens": 5})",
     {"train: exactly one of", "train.steps = 1000", "train.tokens = 5 ("}},
    {R"("train": {"init_from": ""})", {"user.json:3: train.init_from: must not be empty"}},
    {R"("train": {"steps": null})", {"user.json:3: train: exactly one of", "found none"}},
    {R"("train": {"steps": null, "tokens": 1e18})",
     {"user.json:3: train.tokens: makes", "at most 1000000000 steps"}},
    {R"("train": {"steps": null, "chinchilla": 1e6})",
     {"user.json:3: train.chinchilla: makes", "steps"}},
    {R"("checkpoint": {"keep_every_steps": 300})",
     {"user.json:3: checkpoint.keep_every_steps: 300 is not a multiple of checkpoint.every_steps = "
      "250"}},
    {R"("checkpoint": {"every_steps": 0, "keep_every_steps": 10})",
     {"keep_every_steps: 10 is not a multiple"}},
    {R"("device": {"fp8_weight_codes": "one_layer"})",
     {"user.json:3: device.fp8_weight_codes: only with precision.compute = fp8; it is bf16 ("}},
    // text that is no config
    {R"("seed": 1, "seed": 2)", {"user.json:3: seed is set twice"}},
    {R"("seed": )", {"user.json:4:1: "}},
    {R"("seed": NaN)", {"user.json:3:"}},
    {R"("$schema": 1)", {"user.json:3: $schema: expected a string"}},
};

// One phase in FP8 is enough for a key that has no effect otherwise.
TEST_F(RunConfigTest, CodesOfWeightsMayBeThoseOfAPhase) {
  const std::vector<std::string> codes{"device.fp8_weight_codes=one_layer"};
  const auto with = [&](const std::string& phases) {
    return load_run_config("nano_bf16.json", {codes[0], "phases=" + phases});
  };
  EXPECT_NO_THROW(with(R"([{"until": 0.5, "precision": {"compute": "fp8"}}, {"until": 1}])"));
  EXPECT_ERROR(with(R"([{"until": 0.5}, {"until": 1}])"), "device.fp8_weight_codes: only with",
               "no phase has fp8");
}

TEST_F(RunConfigTest, CodesOfWeightsAreKeptAsTheDeviceLikes) {
  DeviceConfig device;
  EXPECT_EQ(weight_codes_of(device, Backend::kCpu), WeightCodes::kAllLayers);
  EXPECT_EQ(weight_codes_of(device, Backend::kCuda), WeightCodes::kOneLayer);
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    device.fp8_weight_codes = Fp8WeightCodes::kAllLayers;
    EXPECT_EQ(weight_codes_of(device, backend), WeightCodes::kAllLayers);
    device.fp8_weight_codes = Fp8WeightCodes::kOneLayer;
    EXPECT_EQ(weight_codes_of(device, backend), WeightCodes::kOneLayer);
  }
}

TEST_F(RunConfigTest, BadConfigsAreRefusedByName) {
  for (const BadConfig& bad : kBadConfigs) {
    SCOPED_TRACE(bad.line);
    try {
      load_with(bad.line, bad.base);
      ADD_FAILURE() << "is accepted";
    } catch (const Error& caught) {
      for (const std::string& part : bad.parts)
        EXPECT_NE(std::string(caught.what()).find(part), std::string::npos)
            << caught.what() << "\nwithout: " << part;
    }
  }
}

TEST_F(RunConfigTest, BadSettingsAreRefusedByName) {
  const auto set = [](const std::string& assignment) {
    load_run_config(kConfigs + "nano_bf16.json", {assignment});
  };
  EXPECT_ERROR(set("optimizer.lr_aditive=1e-3"),
               "--set optimizer.lr_aditive=1e-3: optimizer.lr_aditive: unknown key",
               "\"lr_additive\"?");
  EXPECT_ERROR(set("optimizer.lr_additive=fast"),
               "optimizer.lr_additive: expected a number, found the string \"fast\"");
  EXPECT_ERROR(set("model.hidden_size=130"),
               "model.num_attention_heads: heads of 130 / 2 = 65 elements",
               "model.hidden_size is 130 (--set model.hidden_size=130)");
  EXPECT_ERROR(set("optimizer"), "--set optimizer: expected key=value");
  EXPECT_ERROR(set("seed.x=1"),
               "--set seed.x=1: seed: expected an integer, found the object {\"x\":1}");
  EXPECT_ERROR(set("name.x=1"), "--set name.x=1: name is the string \"nano_bf16\"",
               "nano_bf16.json:5", "not a section");
}

TEST_F(RunConfigTest, ManyFaultsAreReportedTogether) {
  EXPECT_ERROR(load_with(R"("seed": -1, "nmae": 1, "optimizer": {"beta1": 2})"),
               "seed: ", "nmae: ", "beta1: ");
  EXPECT_ERROR(load_with(R"("batch": {"seq_len": 100}, "name": "a/b")"),
               "tokens_per_step: ", "name: ");
}

TEST_F(RunConfigTest, AConfigMadeInCodeIsValidatedInFull) {
  EXPECT_ERROR(validate(RunConfig{}),
               "config: model.hidden_size: must be at least 2 and at most 65536, found 0",
               "config: model.vocab_size: ");
  RunConfig config = load_run_config(kConfigs + "nano_bf16.json");
  config.batch.seq_len = 0;
  EXPECT_ERROR(validate(config), "config: batch.seq_len: must be at least 1");
  config.batch.seq_len = 100;
  EXPECT_ERROR(validate(config), "config: batch.tokens_per_step: 4096 is not a multiple");
}

TEST_F(RunConfigTest, TrainingNeedsShards) {
  const RunConfig config = load_with("\"data\": {\"train\": []}");
  EXPECT_ERROR(require_training_data(config), "data.train: no training shards are given");
}

TEST_F(RunConfigTest, BareNamesAreLookedUp) {
  EXPECT_EQ(find_config(kConfigs + "nano_bf16.json"), kConfigs + "nano_bf16.json");
  const std::string missing = directory_ / "none.json";
  EXPECT_ERROR(find_config(missing), missing + ": no such file");
  EXPECT_ERROR(find_config("no_such_config.json"),
               "no_such_config.json: no such config; looked for", "  configs/no_such_config.json",
               "/share/mpretrain/configs/no_such_config.json");
  EXPECT_ERROR(find_config(""), "--config: the name of the config file is empty");
  const fs::path before = fs::current_path();
  fs::current_path(MPT_SOURCE_DIR);
  EXPECT_EQ(find_config("nano_bf16.json"), "configs/nano_bf16.json");
  fs::current_path(before);
}

TEST_F(RunConfigTest, TheEndingMayBeLeftOutAndTheNearestNameIsTold) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_.path());
  EXPECT_TRUE(find_config("nano_bf16").ends_with("configs/nano_bf16.json"));
  EXPECT_EQ(find_config(kConfigs + "nano_bf16"), kConfigs + "nano_bf16.json");
  EXPECT_ERROR(find_config("nano_bf61.json"), "did you mean nano_bf16.json?", "looked for");
  EXPECT_ERROR(find_config("nano_bf61"), "did you mean nano_bf16.json?");
  EXPECT_ERROR(find_config(kConfigs + "nano_bf61.json"),
               "did you mean " + kConfigs + "nano_bf16.json?");
  fs::current_path(before);
}

// --- names used by other programs ----------------------------------------------------------------

std::string problem_of(const std::string& setting) {
  JsonDocument document = JsonDocument::load(kConfigs + "nano_bf16.json");
  document.set(setting);
  try {
    parse_run_config(document);
  } catch (const Error& caught) {
    return caught.what();
  }
  return "";
}

TEST_F(RunConfigTest, UsualKeysAreTakenForWhatTheyAreCalledHere) {
  const std::vector<std::pair<std::string, std::string>> meant{
      {"optimizer.lr", "optimizer.lr_additive"},
      {"lr", "optimizer.lr_additive"},
      {"learning_rate", "optimizer.lr_additive"},
      {"optimizer.learning-rate", "optimizer.lr_additive"},
      {"max_steps", "train.steps"},
      {"train.max_steps", "train.steps"},
      {"train.epochs", "train.tokens"},
      {"epochs", "train.tokens"},
      {"batch.size", "batch.tokens_per_step"},
      {"batch_size", "batch.tokens_per_step"},
      {"fp8", "precision.weights"},
      {"model.n_layers", "model.num_hidden_layers"}};
  for (const auto& [written, key] : meant) {
    const std::string problem = problem_of(written + "=1");
    EXPECT_NE(problem.find("did you mean \"" + key + "\"?"), std::string::npos) << problem;
  }
  const std::string far = problem_of("optimizer.qwertyuiop=1");
  EXPECT_LT(far.size(), 250u) << far;
}

TEST_F(RunConfigTest, UsualValuesToo) {
  const std::vector<std::array<std::string, 2>> meant{
      {"precision.weights=BF16", "bf16"},
      {"precision.weights=bfloat16", "bf16"},
      {"precision.weights=fp8", "block_fp8"},
      {"precision.compute=FP8_E4M3", ""},
      {"precision.compute=block_fp8", "fp8"},
      {"optimizer.rule=adam", "adamw"},
      {"optimizer.rule=AdamW", "adamw"},
      {"optimizer.rule=m-plus-adam", "m_plus_adam"},
      {"optimizer.rule=m+adam", "m_plus_adam"},
      {"device.type=gpu", "cuda"},
      {"optimizer.weight_rounding=sr", "stochastic"},
      {"precision.weights=qwertyuiop", ""}};
  for (const auto& [setting, value] : meant) {
    const std::string problem = problem_of(setting);
    EXPECT_NE(problem.find("expected one of"), std::string::npos) << problem;
    EXPECT_EQ(problem.find("did you mean") != std::string::npos, !value.empty()) << problem;
    EXPECT_NE(problem.find("did you mean \"" + value), value.empty() ? 0 : std::string::npos)
        << problem;
  }
}

// Files and checkpoints from before a key was renamed keep their meaning.
TEST_F(RunConfigTest, ReadsKeysByTheirFormerNames) {
  const std::string nano = kConfigs + "nano_bf16.json";
  const RunConfig config = load_run_config(
      nano, {"optimizer.writeback=kahan", "log.update_survival=7", "eval.family_batch_rows=3",
             "device.tune_products=false", "device.bf16_products=fma"});
  EXPECT_EQ(config.optimizer.weight_rounding, WeightRounding::kKahan);
  EXPECT_EQ(config.log.update_statistics, 7);
  EXPECT_EQ(config.eval.galore_batch_rows, 3);
  EXPECT_FALSE(config.device.autotune_gemms);
  EXPECT_EQ(config.device.bf16_dot, Bf16Dot::kFma);
  const Json written = resolved_json(config);
  EXPECT_EQ(written["optimizer"]["weight_rounding"], "kahan");
  EXPECT_FALSE(written["optimizer"].contains("writeback"));

  Json before = written;
  before["optimizer"].erase("weight_rounding");
  before["optimizer"]["writeback"] = "kahan";
  EXPECT_EQ(parse_run_config(JsonDocument::of_value(before, "state.json")), config);
}

TEST_F(RunConfigTest, UsualSpellingsAreOfKeysAndValuesThatThereAre) {
  RunConfig config;
  const std::vector<std::string> keys = key_paths(Fields::of(config));
  const std::string schema = schema_text();
  for (const UsualSpelling& entry : usual_spellings().keys) {
    EXPECT_NE(std::ranges::find(keys, entry.meant), keys.end()) << entry.meant;
    EXPECT_EQ(std::ranges::find(keys, entry.written), keys.end()) << entry.written;
    EXPECT_EQ(entry.written, plain_spelling(entry.written));
  }
  for (const UsualSpelling& entry : usual_spellings().values)
    EXPECT_NE(schema.find(fmt::format("\"{}\"", entry.meant)), std::string::npos) << entry.meant;
}

// --- location of included pieces -----------------------------------------------------------------

// README's own example, in a separate directory.
TEST_F(RunConfigTest, PiecesAreFoundFromAnywhere) {
  const std::string page =
      posix_file_system().read_file(MPT_SOURCE_DIR "/docs/reference/configuration.md");
  const size_t begin = page.find("```jsonc\n") + 9, end = page.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  std::ofstream(directory_ / "mine.json") << page.substr(begin, end - begin);
  const fs::path before = fs::current_path();
  fs::current_path(directory_.path());
  const RunConfig config = load_run_config("mine.json");
  EXPECT_EQ(config.name, "longer_rows");
  EXPECT_EQ(config.batch.seq_len, 512);
  EXPECT_EQ(rule_name(config.optimizer.rule), "m_plus_adam");
  fs::create_directories("base");
  std::ofstream("base/nano.json")
      << R"({"model": {"hidden_size": 7}})";  // next to the file comes first
  EXPECT_ERROR(load_run_config("mine.json"), "base/nano.json");
  std::ofstream("lost.json") << R"({"include": ["base/nanno.json"]})";
  EXPECT_ERROR(load_run_config("lost.json"),
               "lost.json:1: include: base/nanno.json: no such file; looked for",
               "\n  base/nanno.json", "\n  configs/base/nanno.json",
               "/share/mpretrain/configs/base/nanno.json");
  fs::current_path(before);
}

}  // namespace
}  // namespace mpt
