// `mpretrain plan` as called by scripts, and the messages of a run before its first step.
#include <algorithm>
#include <sstream>

#include "cli/bad_input_world.h"

namespace mpt::test {
namespace {

class PlanVerb : public BadInput {
 protected:
  static ProgramResult run(const Scene& scene, const Arguments& arguments) {
    return run_program(arguments, {.cwd = scene.path()});
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  // Returns the lines on standard error before that of the first step, or all.
  static int64_t lines_before_steps(const std::string& log) {
    const size_t first = log.find("] step ");
    const std::string before =
        log.substr(0, first == std::string::npos ? log.size() : log.rfind('\n', first) + 1);
    return std::ranges::count(before, '\n');
  }
  static std::string last_line(std::string text) {
    while (text.ends_with('\n')) text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }
};

const Arguments kFresh{"--config", "config.json", "--set", "name=fresh"};

Arguments plan(const Arguments& more = {}) {
  Arguments all{"plan"};
  all.insert(all.end(), kFresh.begin(), kFresh.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_F(PlanVerb, SaysThatARunCanStart) {
  const Scene scene(*world_);
  const ProgramResult text = run(scene, plan({"--check"}));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "  start                  ready\n")) << text.out;
  EXPECT_TRUE(has(text.out, "(estimate): 4 steps at ")) << text.out;
  EXPECT_TRUE(has(text.out, "data/tokenizer.model, 290 pieces; model.vocab_size is 300"))
      << text.out;
  const auto json = nlohmann::json::parse(run(scene, plan({"--json"})).out);
  EXPECT_EQ(json.at("ready"), true);
  EXPECT_GT(json.at("parameters").get<int64_t>(), 0);
  EXPECT_GT(json.at("allocated_bytes").at("total").get<int64_t>(), 0);
  EXPECT_EQ(json.at("needed_bytes"), json.at("allocated_bytes").at("total"));
  EXPECT_GT(json.at("available_bytes").get<int64_t>(), json.at("needed_bytes").get<int64_t>());
  EXPECT_EQ(json.at("data").at("tokenizer").at("pieces"), 290);
  EXPECT_FALSE(std::filesystem::exists(scene / "runs/fresh"));
}

// Values that batch.micro_batch_rows=0 takes, here and on GPUs, none of which is needed.
TEST_F(PlanVerb, SaysHowManyRowsFit) {
  const Scene scene(*world_);
  const ProgramResult text = run(scene, plan());
  EXPECT_TRUE(has(text.out, "1 micro-batch of 4 rows (a whole step at once, which fits)\n"))
      << text.out;
  EXPECT_TRUE(has(text.out, "4 with 24 GB, 4 with 80 GB, 4 with 141 GB of free memory"))
      << text.out;
  const auto rows_of = [&](const Arguments& more) {
    Arguments all = plan({"--json"});
    all.insert(all.end(), more.begin(), more.end());
    return nlohmann::json::parse(run(scene, all).out).at("rows");
  };
  const nlohmann::json small = rows_of({});
  EXPECT_EQ(small.at("micro_batch"), 4);
  EXPECT_EQ(small.at("chosen"), "a whole step at once, which fits");
  const nlohmann::json large =
      rows_of({"--set", "model.hidden_size=4096", "--set", "model.num_hidden_layers=8", "--set",
               "batch.tokens_per_step=98304", "--set", "batch.micro_batch_rows=1"});
  EXPECT_TRUE(large.at("chosen").is_null());
  std::vector<int64_t> gigabytes, rows;
  for (const auto& gpu : large.at("on_gpus")) {
    gigabytes.push_back(gpu.at("gigabytes"));
    rows.push_back(gpu.at("micro_batch"));
  }
  EXPECT_EQ(gigabytes, (std::vector<int64_t>{24, 80, 141}));
  EXPECT_LT(rows[0], rows[1]);
  EXPECT_LE(rows[1], rows[2]);
}

// Lists all problems at once, with the same messages as `train`.
TEST_F(PlanVerb, SaysWhatKeepsARunFromStarting) {
  const Scene scene(*world_);
  scene.remove("data/tokenizer.model");
  scene.remove("data/val_000000.bin");
  const ProgramResult quiet = run(scene, plan()), strict = run(scene, plan({"--check"}));
  EXPECT_EQ(quiet.exit_code, 0) << quiet.err;
  EXPECT_EQ(strict.exit_code, 1);
  EXPECT_TRUE(has(quiet.out, "not ready, 2 problems:")) << quiet.out;
  EXPECT_TRUE(has(
      strict.err,
      "mpretrain: error: fresh cannot start: data.tokenizer: data/tokenizer.model: no such file"))
      << strict.err;
  EXPECT_TRUE(has(strict.err, "data/val_*.bin: no such file")) << strict.err;
  const auto json = nlohmann::json::parse(run(scene, plan({"--json"})).out);
  EXPECT_EQ(json.at("problems").size(), 2);
  EXPECT_TRUE(has(json.at("data").at("made_by"), "mpretrain tokenizer --input"));
  const ProgramResult refused = run(scene, kFresh);
  EXPECT_TRUE(has(refused.err, json.at("problems").at(0).get<std::string>())) << refused.err;
}

TEST_F(PlanVerb, SaysThatTheTokenizerDoesNotFit) {
  const Scene scene(*world_);
  const ProgramResult result = run(scene, plan({"--check", "--set", "model.vocab_size=100", "--set",
                                                "data.tokenizer=larger.model"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(
      has(result.err, "model.vocab_size is 100, but the tokenizer larger.model has 320 pieces"))
      << result.err;
}

// --- before the first step -----------------------------------------------------------------------

TEST_F(PlanVerb, ARunSaysLittleBeforeItsFirstStep) {
  constexpr int64_t kMostLines = 8;
  const Scene scene(*world_);
  const ProgramResult start = run(scene, kFresh);
  EXPECT_EQ(start.exit_code, 0);
  EXPECT_GE(lines_before_steps(start.err), 6) << start.err;
  EXPECT_LE(lines_before_steps(start.err), kMostLines) << start.err;
  for (const char* unreadable : {"of limit", "N_products", "family"})
    EXPECT_FALSE(has(start.err, unreadable)) << start.err;
  scene.remove("runs/fresh/checkpoints/step_00000004");
  Arguments again = kFresh;
  again.insert(again.end(), {"--resume", "latest"});
  const ProgramResult resumed = run(scene, again);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(
      has(resumed.err, "start: continuing from runs/fresh/checkpoints/step_00000002 at step 2"));
  EXPECT_LE(lines_before_steps(resumed.err), kMostLines) << resumed.err;
}

// The plan, and a run before its first step, warn of configurations known to end badly.
TEST_F(PlanVerb, AnUnstableConfigurationIsWarnedOf) {
  const Scene scene(*world_);
  const Arguments unstable{"--set", "precision.weights=nvfp4", "--set",
                           "optimizer.error_feedback=momentum"};
  Arguments train = kFresh;
  train.insert(train.end(), unstable.begin(), unstable.end());
  const std::string warning =
      "optimizer.error_feedback = momentum is unstable with optimizer.weight_rounding = nearest, "
      "precision.weights = nvfp4 and optimizer.beta1 = 0.9, at least 0.75: ";
  const ProgramResult planned = run(scene, plan(unstable)), started = run(scene, train);
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_TRUE(has(planned.out, "  warning                " + warning)) << planned.out;
  EXPECT_TRUE(has(planned.out, "  start                  ready\n")) << planned.out;
  EXPECT_EQ(started.exit_code, 0) << started.err;
  EXPECT_LT(started.err.find(warning), started.err.find("] step ")) << started.err;
  EXPECT_FALSE(has(run(scene, plan()).out, "  warning "));
}

// The chosen or configured number of rows is recorded, and a resumed run keeps it.
TEST_F(PlanVerb, ARunKeepsTheRowsThatItBeganWith) {
  const Scene scene(*world_);
  const auto recorded = [&](const std::string& name) {
    const auto config =
        nlohmann::json::parse(content_of(scene / ("runs/" + name + "/config.json")));
    return std::pair<int64_t, int64_t>(config.at("batch").at("micro_batch_rows"),
                                       config.at("eval").at("galore_batch_rows"));
  };
  const auto train = [&](Arguments more) {
    more.insert(more.begin(), {"--config", "config.json"});
    ProgramResult result = run(scene, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_TRUE(has(train({"--set", "name=chosen"}), "in 1 micro-batch of 4 (a whole step at once"));
  EXPECT_EQ(recorded("chosen"), std::pair(int64_t{4}, int64_t{4}));
  train({"--set", "name=begun", "--set", "batch.micro_batch_rows=2"});
  EXPECT_EQ(recorded("begun").first, 2);
  scene.remove("runs/begun/checkpoints/step_00000004");
  const std::string log = train({"--set", "name=begun", "--resume", "latest"});
  EXPECT_TRUE(has(log, "in 2 micro-batches of 2 (as the checkpoint was saved)")) << log;
  EXPECT_FALSE(has(log, "resume: ")) << log;
  EXPECT_EQ(recorded("begun"), std::pair(int64_t{2}, int64_t{2}));
}

TEST_F(PlanVerb, AFailureBeforeTheFirstStepIsTheLastLine) {
  const Scene scene(*world_);
  Arguments other = kFresh;
  other.insert(other.end(), {"--resume", "runs/tiny/checkpoints/step_00000004", "--set", "seed=4"});
  const ProgramResult result = run(scene, other);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(last_line(result.err).starts_with("mpretrain: error: ")) << result.err;
  EXPECT_LE(lines_before_steps(result.err), 10) << result.err;
}

// The full memory report, on request.
TEST_F(PlanVerb, TheRestIsThereOnRequest) {
  const Scene scene(*world_);
  Arguments all{"--log-level", "debug"};
  all.insert(all.end(), kFresh.begin(), kFresh.end());
  EXPECT_TRUE(has(run(scene, all).err, "largest micro-batch"));
}

}  // namespace
}  // namespace mpt::test
