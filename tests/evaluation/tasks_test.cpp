// Published tasks: lm-eval's result for each example on the same model, for any batch.
//
// tests/golden/tasks/ is made by make_tasks_golden.py with lm-eval's own definitions of the tasks.
// If MPT_LM_EVAL_PYTHON names an interpreter that has lm-eval, it evaluates exports itself.
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "evaluation/tasks/evaluate_tasks.h"
#include "evaluation/tasks/tasks_of_checkpoint.h"
#include "interchange/import_model.h"
#include "support/files.h"
#include "support/run_program.h"
#include "support/scaled_checkpoint.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

using nlohmann::json;

std::string golden(const std::string& name) { return MPT_SOURCE_DIR "/tests/golden/tasks/" + name; }

NamedTexts golden_tasks() {
  NamedTexts tasks;
  for (const std::string_view name : EnumNames<TaskKind>::kNames)
    tasks.push_back({std::string(name), {golden(std::string(name) + ".jsonl")}});
  return tasks;
}

class LmEval : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    import_model(disk, {.directory = golden(GetParam()), .output = directory_ / "model"});
  }
  // llama3's tokenizer prepends BOS to a text.
  [[nodiscard]] TasksOptions options(int64_t rows = 0) const {
    return {.checkpoint = directory_ / "model",
            .tasks = golden_tasks(),
            .prepend_bos = GetParam() == std::string_view("llama3"),
            .micro_batch_rows = rows,
            .device = {.type = DeviceType::kCpu, .threads = 1}};
  }
  [[nodiscard]] std::string details(const TasksOptions& of) const {
    std::string all;
    for (const TaskResult& result : evaluate_tasks(disk, of).results) all += details_of(result);
    return all;
  }
  TempDirectory directory_;
};

// Sums of at most 64 logarithms below 30 in float32 on both sides: 64 * 30 * 2^-23 is 2e-4.
constexpr double kTolerance = 2e-4;

void expect_same_example(TaskKind kind, const ExampleResult& got, const json& expected) {
  const json& likelihoods = expected.at("log_likelihoods");
  ASSERT_EQ(likelihoods.size(), got.log_likelihoods.size());
  for (size_t k = 0; k < likelihoods.size(); ++k)
    EXPECT_NEAR(got.log_likelihoods[k], likelihoods[k].get<double>(), kTolerance) << k;
  if (is_multiple_choice(kind)) {
    EXPECT_EQ(got.chosen == got.answer, expected.at("acc") == 1.0);
    EXPECT_EQ(got.chosen_by_length == got.answer, expected.at("acc_norm") == 1.0);
  } else {
    EXPECT_EQ(got.is_greedy, expected.at("is_greedy"));
  }
}

// By lm-eval's names. A perplexity has a relative error, that of a mean of log-likelihoods.
void expect_same_means(const json& got, const json& expected) {
  for (const auto& [key, value] : expected.items()) {
    if (key == "examples") continue;
    const double tolerance = key == "perplexity" ? kTolerance * value.get<double>() : 1e-12;
    EXPECT_NEAR(got.at(key).get<double>(), value.get<double>(), tolerance) << key;
  }
}

void expect_same(std::span<const TaskResult> results, const json& expected) {
  const json means = tasks_json(results);
  ASSERT_EQ(results.size(), 5u);
  for (const TaskResult& result : results) {
    const std::string name(name_of(result.kind));
    const json& task = expected.at(name);
    ASSERT_EQ(result.examples.size(), task.at("examples").size()) << name;
    for (size_t i = 0; i < result.examples.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}, example {}", name, i));
      expect_same_example(result.kind, result.examples[i], task.at("examples")[i]);
    }
    SCOPED_TRACE(name);
    expect_same_means(means.at(name), task);
  }
}

TEST_P(LmEval, GivesTheSameExampleByExample) {
  expect_same(evaluate_tasks(disk, options()).results,
              json::parse(disk.read_file(golden(std::string(GetParam()) + ".json"))));
}

TEST_P(LmEval, NothingDependsOnTheBatch) {
  const std::string expected = details(options());
  for (const int64_t rows : {1, 3, 1000}) EXPECT_EQ(details(options(rows)), expected) << rows;
}

INSTANTIATE_TEST_SUITE_P(Models, LmEval, testing::Values("gpt2", "llama3"),
                         [](const auto& test) { return std::string(test.param); });

// The export rounds the values of scaled weights.
TEST(Tasks, LmEvalAgreesOnAnExport) {
  const char* python = std::getenv("MPT_LM_EVAL_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "MPT_LM_EVAL_PYTHON names no interpreter with lm-eval";
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBlockFp8, WeightFormat::kNvfp4}) {
    SCOPED_TRACE(name_of(format));
    ScaledModel model{.linears = {.format = format},
                      .tokenizer = MPT_SOURCE_DIR "/tests/golden/tokenizers/bpe.model",
                      .seq_len = 64};
    model.model.vocab_size = 480;
    const ScaledExport exported(model);
    const ProgramResult judged =
        run_program({"-B", MPT_SOURCE_DIR "/tests/golden/make_tasks_golden.py", "--model",
                     exported.run("exported")},
                    {.timeout_s = 300, .program = python});
    ASSERT_EQ(judged.exit_code, 0) << judged.err;
    const TasksOptions options{.checkpoint = exported.checkpoint,
                               .tasks = golden_tasks(),
                               .device = {.type = DeviceType::kCpu, .threads = 1}};
    expect_same(evaluate_tasks(disk, options).results, json::parse(judged.out));
  }
}

TEST(Tasks, DetailsAreJsonLines) {
  const TaskResult choice{.kind = TaskKind::kPiqa,
                          .examples = {{.place = "a:1",
                                        .answer = 1,
                                        .log_likelihoods = {-2, -1.5},
                                        .chosen = 1,
                                        .chosen_by_length = 0}}};
  EXPECT_EQ(details_of(choice), R"({"task":"piqa","place":"a:1","log_likelihoods":[-2.0,-1.5],)"
                                R"("answer":1,"chosen":1,"chosen_by_length":0})"
                                "\n");
  const TaskResult word{.kind = TaskKind::kLambadaOpenai,
                        .examples = {{.place = "b:2", .log_likelihoods = {-4}, .is_greedy = true}}};
  EXPECT_EQ(details_of(word), R"({"task":"lambada_openai","place":"b:2","log_likelihoods":[-4.0],)"
                              R"("is_greedy":true})"
                              "\n");
  EXPECT_EQ(summary_of(choice), "acc 1.0000 ± 0.0000 | acc_norm 0.0000 ± 0.0000 | on 1 example");
  EXPECT_EQ(summary_of(word), "acc 1.0000 ± 0.0000 | perplexity 54.598 | on 1 example");
}

// For 4 of 5: a sample variance of 0.8 * 0.2 * 5 / 4.
TEST(Tasks, StandardErrorIsThatOfAMean) {
  EXPECT_DOUBLE_EQ(standard_error(0.8, 5), std::sqrt(0.2 / 5));
  EXPECT_EQ(standard_error(1, 1), 0);
}

}  // namespace
}  // namespace mpt::test
