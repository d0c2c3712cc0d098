// A run works from another working directory, and after being moved or copied away from its data.
#include "cli/bad_input_world.h"

namespace mpt::test {
namespace {

class MovedRun : public BadInput {
 protected:
  static ProgramResult run_in(const std::string& cwd, const Arguments& arguments) {
    return run_program(arguments, {.cwd = cwd});
  }
  static ProgramResult must_in(const std::string& cwd, const Arguments& arguments) {
    const ProgramResult result = run_in(cwd, arguments);
    EXPECT_EQ(result.exit_code, 0) << fmt::format("{}\n", fmt::join(arguments, " ")) << result.err;
    return result;
  }
  static Arguments generate(const std::string& run) {
    return {"generate", "--checkpoint", run, "--prompt", "abc", "--temperature",
            "0",        "--threads",    "1"};
  }
  static Arguments eval(const std::string& run) {
    return {"eval", "--checkpoint", run, "--threads", "1"};
  }
  // Returns the part of eval's summary that names no path.
  static std::string figures(const std::string& summary) {
    return summary.substr(summary.find('\n'));
  }

  Scene scene_{*world_};
  TempDirectory elsewhere_;
};

TEST_F(MovedRun, KeepsTheTokenizerAndTheManifestOfItsData) {
  EXPECT_EQ(scene_.read("runs/tiny/tokenizer.model"), scene_.read("tok.model"));
  EXPECT_EQ(scene_.read("runs/tiny/data_manifest.json"), scene_.read("data/manifest.json"));
}

TEST_F(MovedRun, AnotherWorkingDirectoryChangesNothing) {
  const std::string run = scene_ / "runs/tiny", step = run + "/checkpoints/step_00000002";
  EXPECT_EQ(must_in(elsewhere_.path(), generate(run)).out,
            must_in(scene_.path(), generate("runs/tiny")).out);
  EXPECT_EQ(figures(must_in(elsewhere_.path(), eval(run)).out),
            figures(must_in(scene_.path(), eval("runs/tiny")).out));
  must_in(elsewhere_.path(), generate(step));
  must_in(elsewhere_.path(), eval(step));
  must_in(elsewhere_.path(), {"export", "--checkpoint", run, "--output", "out"});
  EXPECT_EQ(content_of(elsewhere_ / "out/tokenizer.model"), scene_.read("tok.model"));
  EXPECT_EQ(must_in(scene_ / "runs/tiny/checkpoints", generate("step_00000004")).exit_code, 0);
}

TEST_F(MovedRun, NeedsNothingOfItsOldPlace) {
  const std::string text = must_in(scene_.path(), generate("runs/tiny")).out,
                    loss = figures(must_in(scene_.path(), eval("runs/tiny")).out);
  std::filesystem::copy(scene_ / "runs/tiny", elsewhere_ / "copy",
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(scene_ / "data", elsewhere_ / "shards",
                        std::filesystem::copy_options::recursive);
  for (const char* name : {"runs", "data", "tok.model"}) scene_.remove(name);
  EXPECT_EQ(must_in(elsewhere_.path(), generate("copy")).out, text);
  must_in(elsewhere_.path(), {"export", "--checkpoint", "copy", "--output", "out"});

  const ProgramResult lost = run_in(elsewhere_.path(), eval("copy"));
  EXPECT_EQ(lost.exit_code, 1);
  for (const std::string& part : {std::string("data/val_*.bin"),
                                  "not found (from " + elsewhere_.path(), std::string("--data")})
    EXPECT_NE(lost.err.find(part), std::string::npos) << part << "\n" << lost.err;
  Arguments named = eval("copy");
  named.insert(named.end(), {"--data", "shards/val_*.bin"});
  EXPECT_EQ(figures(must_in(elsewhere_.path(), named).out), loss);
}

// Run directories of versions that kept no tokenizer.
TEST_F(MovedRun, ARunWithoutATokenizerIsUsedBesideItsData) {
  for (const char* name : {"tokenizer.model", "data_manifest.json"})
    scene_.remove(std::string("runs/tiny/") + name);
  must_in(scene_.path(), generate("runs/tiny"));
  must_in(scene_.path(), eval("runs/tiny"));
  must_in(elsewhere_.path(), generate(scene_ / "runs/tiny"));
  must_in(scene_.path(),
          {"--config", "config.json", "--set", "train.steps=6", "--resume", "latest"});
  EXPECT_EQ(scene_.read("runs/tiny/tokenizer.model"), scene_.read("tok.model"));
}

void without_tokenizer(const Scene& scene) {
  for (const char* name : {"runs/tiny/tokenizer.model", "runs/tiny/data_manifest.json", "data"})
    scene.remove(name);
}

TEST_F(MovedRun, ExportIsWithoutATokenizerOnlyWhenAsked) {
  const Arguments exporting{"export", "--checkpoint", "runs/tiny", "--output", "new"};
  expect_all_refused({{"gone", exporting, {"--tokenizer", "--no-tokenizer"}, without_tokenizer}});
  without_tokenizer(scene_);
  Arguments weights = exporting;
  weights.push_back("--no-tokenizer");
  EXPECT_NE(must_in(scene_.path(), weights).out.find("without a tokenizer"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scene_ / "new/tokenizer.model"));
  Arguments named = exporting;
  named.insert(named.end(), {"--overwrite", "--tokenizer", "tok.model"});
  must_in(scene_.path(), named);
  EXPECT_EQ(scene_.read("new/tokenizer.model"), scene_.read("tok.model"));
}

TEST_F(MovedRun, IsNotContinuedWithAnotherTokenizer) {
  expect_all_refused(
      {{"another tokenizer",
        {"--config", "config.json", "--set", "train.steps=6", "--resume", "latest"},
        {"data/tokenizer.model", "a different one", "runs/tiny/tokenizer.model"},
        [](const Scene& s) { s.write("runs/tiny/tokenizer.model", s.read("larger.model")); }}});
}

TEST_F(MovedRun, ANewStartTakesNothingFromOneThatBrokeOff) {
  scene_.make_directory("runs/fresh");
  scene_.write("runs/fresh/tokenizer.model", "stale");
  must_in(scene_.path(), {"--config", "config.json", "--set", "name=fresh"});
  EXPECT_EQ(scene_.read("runs/fresh/tokenizer.model"), scene_.read("tok.model"));
}

}  // namespace
}  // namespace mpt::test
