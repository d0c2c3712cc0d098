// The program as users see it: usage, exit status, and which output goes to which stream.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/random.h"
#include "data/manifest.h"
#include "support/files.h"
#include "support/run_program.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

const Arguments kVerbs{"train",    "plan",   "schema", "tokenizer", "tokenize",   "eval",
                       "generate", "export", "import", "convert",   "checkpoint", "toy"};

// --- usage ---------------------------------------------------------------------------------------

TEST(Program, Version) {
  const ProgramResult result = run_program({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(std::regex_match(first_line(result.out), std::regex(R"(mpretrain \d+\.\d+\.\d+)")))
      << result.out;
  for (const std::string row :
       {"commit", "compiled for", "compiled by", "loaded from", "devices", "ranks", "libraries"})
    EXPECT_TRUE(std::regex_search(result.out, std::regex("\n" + row + " +[^ \n]"))) << row;
  EXPECT_TRUE(
      std::regex_search(result.out, std::regex(R"(\ncommit +([0-9a-f]{12,}(-dirty)?|unknown)\n)")))
      << result.out;
  EXPECT_TRUE(has(result.out, "own kernels for ")) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(Program, HelpListsTheVerbsAndEachVerbHasHelp) {
  const ProgramResult all = run_program({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  for (const std::string& verb : kVerbs) {
    EXPECT_TRUE(has(all.out, "\n  " + verb)) << verb;
    const ProgramResult one = run_program({verb, "--help"});
    EXPECT_EQ(one.exit_code, 0) << verb;
    EXPECT_TRUE(has(one.out, "mpretrain " + verb)) << one.out;
    EXPECT_EQ(one.err, "") << verb;
  }
}

TEST(Program, HelpIsAVerbToo) {
  EXPECT_EQ(run_program({"help"}).out, run_program({"--help"}).out);
  for (const std::string& verb : kVerbs)
    EXPECT_EQ(run_program({"help", verb}).out, run_program({verb, "--help"}).out) << verb;
  EXPECT_EQ(run_program({"help", "checkpoint", "prune"}).out,
            run_program({"checkpoint", "prune", "--help"}).out);
  const ProgramResult unknown = run_program({"help", "tokenise"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(has(unknown.err, "did you mean 'tokenize'?")) << unknown.err;
}

struct Mistake {
  Arguments arguments;
  int exit_code;
  std::string says;
};

// Each is found before anything is read or written.
const std::vector<Mistake> kMistakes{
    {{}, 2, "A verb (train,"},
    {{"tokenizr"}, 2, "unknown verb 'tokenizr' (did you mean 'tokenizer'?)"},
    {{"xyz"}, 2, "unknown verb 'xyz'; the verbs are train,"},
    {{""}, 2, "unknown verb ''"},
    {{"--log-level"}, 2, "A verb"},
    {{"--log-level", "loud", "schema"},
     2,
     "--log-level: 'loud' is not one of: debug, info, warning, error"},
    {{"--log-level=debug"}, 2, "A verb"},
    {{"--log-level=debug", "shema"}, 2, "unknown verb 'shema' (did you mean 'schema'?)"},
    {{"--log-level=loud", "schema"}, 2, "--log-level: 'loud' is not one of"},
    {{"--set", "seed=1"}, 2, "--config is required"},
    {{"train"}, 2, "--config is required"},
    {{"plan"}, 2, "--config is required"},
    {{"--config"}, 2, "--config"},
    {{"--config", ""}, 2, "--config: must not be empty"},
    {{"--config", "a", "--config", "b"}, 2, "--config"},
    {{"--config", "a", "--resume", ""}, 2, "--resume: must not be empty"},
    {{"--config", "a", "--profile", "0"}, 2, "--profile: '0' is not a whole number from 1"},
    {{"--config", "a", "--profile", "x"}, 2, "--profile: 'x'"},
    {{"--config", "a", "--profile", "2", "--profile", "3"}, 2, "--profile"},
    {{"--config", "a", "--profile", "--resume", "auto"}, 2, "--resume excludes --profile"},
    {{"--config", "missing.json"}, 1, "missing.json"},
    {{"--profile", "--config", "missing.json"}, 1, "missing.json"},
    {{"train", "--config", "missing.json", "--unknown"}, 2, "--unknown"},
    {{"--cofig", "a.json"}, 2, "unknown option '--cofig' (did you mean '--config'?)"},
    {{"--config", "a", "--sett", "b=1"}, 2, "unknown option '--sett' (did you mean '--set'?)"},
    {{"--config", "a", "--resum=auto"}, 2, "unknown option '--resum' (did you mean '--resume'?)"},
    {{"--config", "a", "--lr", "1e-3"}, 2, "(did you mean '--set optimizer.lr_additive=...'?)"},
    {{"plan", "--config", "a", "--max-steps", "5"}, 2, "(did you mean '--set train.steps=...'?)"},
    {{"--config", "a", "--qwertyuiop"},
     2,
     "unknown option '--qwertyuiop'\nSee mpretrain train --help"},
    {{"checkpoint", "prune", "a", "--keep-lats", "3"},
     2,
     "(did you mean '--keep-last'?); --keep-last is req"},
    {{"generate", "--checkpoint", "a", "--promt", "b"},
     2,
     "unknown option '--promt' (did you mean '--prompt'?)"},
    {{"import"}, 2, "directory is required"},
    {{"import", "a"}, 2, "--output is required"},
    {{"import", "a", "--output", "b", "--weights", "int8"},
     2,
     "--weights: 'int8' is not one of: fp32, bf16, block_fp8, nvfp4, mxfp8"},
    {{"import", "a", "--output", "b", "--seq-len", "0"}, 2, "--seq-len: '0'"},
    {{"import", "a", "--output", "b"}, 1, "a: no such directory"},
    {{"convert", "a", "--output", "b"}, 2, "--weights is required"},
    {{"convert", "a", "--output", "b", "--weights", "fp32"}, 1, "a: no such checkpoint"},
    {{"checkpoint", "average", "a"}, 2, "--output is required"},
    {{"checkpoint", "average", "a", "--output", "b"}, 1, "two checkpoints or more"},
    {{"checkpoint", "average", "a", "--last", "1", "--output", "b"}, 2, "--last: '1'"},
    {{"schema", "more"}, 2, "more"},
    {{"tokenizer", "--input", "a.txt"}, 2, "--output is required"},
    {{"tokenizer", "--output", "a"}, 2, "--input is required"},
    {{"tokenizer", "--input", "missing.txt", "--output", "a"}, 1, "missing.txt"},
    {{"tokenizer", "--input", "a", "--output", "b", "--vocab-size", "-5"},
     2,
     "--vocab-size: '-5' is not a whole number from 260"},
    {{"tokenizer", "--input", "a", "--output", "b", "--vocab-size", "259"},
     2,
     "--vocab-size: '259'"},
    {{"tokenizer", "--input", "a", "--output", "b", "--vocab-size", "1e4"},
     2,
     "--vocab-size: '1e4'"},
    {{"tokenizer", "--input", "a", "--output", "b", "--vocab-size", "99999999999999999999"},
     2,
     "--vocab-size"},
    {{"tokenizer", "--input", "a", "--output", "b", "--vocab-size", ""}, 2, "--vocab-size: ''"},
    {{"tokenizer", "--input", "a", "--output", "b", "--character-coverage", "nan"},
     2,
     "--character-coverage: 'nan'"},
    {{"tokenizer", "--input", "a", "--output", "b", "--sample-bytes", "0"},
     2,
     "--sample-bytes: '0'"},
    {{"tokenizer", "--input", "a", "--output", "b", "--seed", "-1"}, 2, "--seed: '-1'"},
    {{"tokenizer", "--input", "a", "--output", "b", "--on-bad-document", "fix"},
     2,
     "is not one of: error, skip"},
    {{"tokenize", "--input", "a", "--tokenizer", "b", "--output", "c", "--validation-fraction",
      "nan"},
     2,
     "'nan' is not a number from 0 to 1"},
    {{"tokenize", "--input", "a", "--tokenizer", "b", "--output", "c", "--val-fraction", "-0.1"},
     2,
     "--val-fraction: '-0.1'"},
    {{"tokenize", "--input", "a", "--tokenizer", "b", "--output", "c", "--shard-tokens", "0"},
     2,
     "--shard-tokens: '0'"},
    {{"tokenize", "--input", "a", "--tokenizer", "b", "--output", "c", "--shard-tokens",
      "3000000000"},
     2,
     "--shard-tokens"},
    {{"tokenize", "--input", "a", "--tokenizer", "b", "--output", "c", "--threads", "-1"},
     2,
     "--threads: '-1'"},
    {{"tokenize", "--input", "a", "--tokenizer", "missing.model", "--output", "c"},
     1,
     "missing.model"},
    {{"eval"}, 2, "--checkpoint is required"},
    {{"eval", "--checkpoint", "missing"}, 1, "missing: no such checkpoint"},
    {{"eval", "--checkpoint", "."}, 1, "neither a checkpoint"},
    {{"eval", "--checkpoint", "a", "--tokens", "0"}, 2, "--tokens: '0'"},
    {{"eval", "--checkpoint", "a", "--micro-batch-rows", "x"}, 2, "--micro-batch-rows: 'x'"},
    {{"eval", "--checkpoint", "a", "--family-batch-rows", "-1"}, 2, "--family-batch-rows: '-1'"},
    {{"eval", "--checkpoint", "a", "--tasks", "piqa"}, 2, "--tasks: 'piqa' is not NAME=FILE"},
    {{"eval", "--checkpoint", "a", "--tasks", "piqa="}, 2, "--tasks: 'piqa=' is not NAME=FILE"},
    {{"eval", "--checkpoint", "a", "--tasks", "copa=b"}, 2, "'copa' is not one of: hellaswag"},
    {{"eval", "--checkpoint", "a", "--details", "b"}, 2, "--details requires --tasks"},
    {{"eval", "--checkpoint", "a", "--task-examples", "1"}, 2, "--task-examples requires --tasks"},
    {{"eval", "--checkpoint", "a", "--tasks", "piqa=b", "--tokens", "5"},
     2,
     "--tokens: means nothing with --tasks and without --data"},
    {{"eval", "--checkpoint", "a", "--tasks", "piqa=b", "--details", "missing/c"},
     1,
     "--details missing/c: there is no directory missing"},
    {{"eval", "--checkpoint", "a", "--tasks", "piqa=b", "--details", "/tmp"},
     1,
     "--details /tmp: is a directory; expected a file"},
    {{"generate", "--checkpoint", "a"}, 2, "--prompt is required"},
    {{"generate", "--checkpoint", "a", "--prompts", ""}, 2, "--prompts: must not be empty"},
    {{"generate", "--checkpoint", "a", "--prompts", "missing.txt"}, 1, "missing.txt"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--top-p", "0"}, 2, "--top-p: '0'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--top-p", "1.1"}, 2, "--top-p: '1.1'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--samples", "0"}, 2, "--samples: '0'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--samples", "2", "--temperature", "0"},
     2,
     "all samples are the same with --temperature 0"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--temperature", "-1"},
     2,
     "--temperature: '-1'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--temperature", "inf"},
     2,
     "--temperature: 'inf'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--temperature", "0.5x"},
     2,
     "--temperature: '0.5x'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--top-k", "-1"}, 2, "--top-k: '-1'"},
    {{"generate", "--checkpoint", "a", "--prompt", "b", "--max-tokens", "0"},
     2,
     "--max-tokens: '0'"},
    {{"checkpoint"}, 2, "A verb (list, verify, prune, average)"},
    {{"checkpoint", "verfy", "a"}, 2, "unknown verb 'verfy' (did you mean 'verify'?)"},
    {{"checkpoint", "remove", "a"},
     2,
     "unknown verb 'remove'; the verbs are list, verify, prune, average"},
    {{"checkpoint", "list"}, 2, "directory is required"},
    {{"checkpoint", "list", ""}, 2, "directory: must not be empty"},
    {{"checkpoint", "list", "a", "b"}, 2, "b"},
    {{"checkpoint", "list", "missing"}, 1, "missing: no such checkpoint or run directory"},
    {{"checkpoint", "verify", "."}, 1, ".: neither a checkpoint"},
    {{"checkpoint", "prune", "a"}, 2, "--keep-last is required"},
    {{"checkpoint", "prune", "a", "--keep-last", "0"}, 2, "--keep-last: '0'"},
    {{"checkpoint", "prune", "a", "--keep-last", "1", "--keep-every", "-1"},
     2,
     "--keep-every: '-1'"},
    {{"checkpoint", "prune", "missing", "--keep-last", "1"}, 1, "missing: no such directory"},
    {{"checkpoint", "prune", ".", "--keep-last", "1"}, 1, "no checkpoints (step_...)"},
    {{"export", "--checkpoint", "a"}, 2, "--output is required"},
    {{"export", "--checkpoint", "missing", "--output", "b"}, 1, "missing: no such checkpoint"},
    {{"export", "--checkpoint", "a", "--output", "b", "--format", "onnx"},
     2,
     "'onnx' is not one of: hf, hf-codes, gguf"},
    {{"export", "--checkpoint", "a", "--output", "b", "--type", "f16"},
     1,
     "--type f16: is an option of --format gguf"},
};

TEST(Program, MistakesAreNamedOnStandardError) {
  const TempDirectory directory;
  for (const Mistake& mistake : kMistakes) {
    const ProgramResult result = run_program(mistake.arguments, {.cwd = directory.path()});
    const std::string line = fmt::format("{}\n{}", fmt::join(mistake.arguments, " "), result.err);
    EXPECT_EQ(result.exit_code, mistake.exit_code) << line;
    EXPECT_TRUE(result.err.starts_with("mpretrain: error: ")) << line;
    EXPECT_TRUE(has(result.err, mistake.says)) << line;
    EXPECT_EQ(result.out, "") << line;
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

// --- output --------------------------------------------------------------------------------------

TEST(Program, SchemaIsTheCommittedOne) {
  const ProgramResult result = run_program({"schema"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, content_of(MPT_SOURCE_DIR "/configs/schema.json"));
  EXPECT_EQ(result.err, "");
}

ProgramResult run_in_shell(const std::string& command) {
  return run_program({"-c", command}, {.env = {{"P", MPT_PROGRAM}}, .program = "/bin/sh"});
}

TEST(Program, AReaderThatLeavesIsNoFailure) {
  const ProgramResult result =
      run_in_shell(R"({ "$P" schema; echo "status $?" >&2; } | head -c 1)");
  EXPECT_EQ(result.out, "{");
  EXPECT_EQ(result.err, "status 0\n");
  // Nobody reads at all.
  EXPECT_EQ(run_in_shell(R"({ sleep 0.1; "$P" schema; echo "status $?" >&2; } | true)").err,
            "status 0\n");
}

TEST(Program, OutputThatCannotBeWrittenIsAFailure) {
  for (const std::string verb : {"schema", "--version"}) {
    const ProgramResult result = run_in_shell("\"$P\" " + verb + " >/dev/full");
    EXPECT_EQ(result.exit_code, 1) << verb;
    EXPECT_TRUE(has(result.err, "standard output")) << result.err;
  }
}

// Closed by a daemon or `>&-`: no file of the program may take their numbers.
TEST(Program, StandardDescriptorsMayBeClosed) {
  EXPECT_EQ(run_in_shell(R"("$P" nonsense 2>&-; echo $?)").out, "2\n");
  EXPECT_EQ(run_in_shell(R"("$P" schema 2>&- | head -c 1)").out, "{");
  const ProgramResult result = run_in_shell(R"("$P" schema >&-)");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(has(result.err, "standard output")) << result.err;
  const TempDirectory directory;
  const ProgramResult input =
      run_in_shell("\"$P\" tokenizer --input - --as text --vocab-size 300 --output " +
                   directory / "t.model" + " <&-");
  EXPECT_EQ(input.exit_code, 1);
  EXPECT_TRUE(has(input.err, "standard input")) << input.err;
}

TEST(Program, ARunWithoutStandardDescriptorsKeepsItsRecords) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  std::ofstream(directory / "config.json") << tiny_config_text(directory.path(), "run");
  const std::string train = "\"$P\" --config " + directory / "config.json" + " --set name=";
  ASSERT_EQ(run_in_shell(train + "closed <&- >&- 2>&-").exit_code, 0);
  ASSERT_EQ(run_in_shell(train + "open").exit_code, 0);
  const auto steps = [&](const std::string& name) {
    std::ifstream metrics(directory / ("runs/" + name + "/metrics.jsonl"));
    int64_t lines = 0;
    for (std::string line; std::getline(metrics, line); ++lines)
      EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    return lines;
  };
  EXPECT_EQ(steps("closed"), steps("open"));
}

// A log on a full disk ends no run, and does not change its exit status.
TEST(Program, StandardErrorThatCannotBeWrittenEndsNothing) {
  EXPECT_EQ(run_in_shell(R"("$P" nonsense 2>/dev/full; echo $?)").out, "2\n");
  const TempDirectory directory;
  write_tiny_data(directory.path());
  std::ofstream(directory / "config.json") << tiny_config_text(directory.path(), "run");
  EXPECT_EQ(run_in_shell("\"$P\" --config " + directory / "config.json" + " 2>/dev/full").exit_code,
            0);
}

// --- text to shards ------------------------------------------------------------------------------

// Documents of a few words from a small vocabulary.
void write_corpus(const std::string& path, int64_t documents) {
  const Arguments words{"weights", "gradients", "step", "model",    "of",
                        "the",     "token",     "loss", "rounding", "été"};
  std::ofstream file(path);
  for (int64_t i = 0; i < documents; ++i) {
    const RandomCounter draw{
        .seed = 5, .tensor = 0, .row = uint32_t(i), .step = 0, .stream = kSyntheticStream};
    for (uint32_t w = 0; w < 20; ++w)
      file << words[draw.word(w) % words.size()] << (w % 7 == 6 ? ".\n" : " ");
    file << "\n\n";
  }
}

class TextToShards : public testing::Test {
 protected:
  TextToShards() { write_corpus(directory_ / "corpus.txt", 200); }

  ProgramResult run(const Arguments& arguments) {
    return run_program(arguments, {.cwd = directory_.path()});
  }
  ProgramResult train_tokenizer() {
    return run({"tokenizer", "--input", "corpus.txt", "--vocab-size", "300", "--output", "tok"});
  }
  ProgramResult tokenize(Arguments more = {}) {
    Arguments arguments{"tokenize",  "--input",  "*.txt", "--tokenizer",
                        "tok.model", "--output", "data"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  TempDirectory directory_;
};

TEST_F(TextToShards, SummariesSayWhatWasMade) {
  const ProgramResult tokenizer = train_tokenizer();
  ASSERT_EQ(tokenizer.exit_code, 0) << tokenizer.err;
  EXPECT_TRUE(has(tokenizer.out, "tok.model")) << tokenizer.out;
  EXPECT_TRUE(has(tokenizer.out, "pieces           300")) << tokenizer.out;

  const ProgramResult tokens = tokenize({"--val-fraction", "0.1", "--seed", "3", "--threads", "2"});
  ASSERT_EQ(tokens.exit_code, 0) << tokens.err;
  const Manifest manifest = Manifest::load(directory_ / "data/manifest.json");
  const ManifestSplit& train = manifest.splits.at("train");
  EXPECT_EQ(train.documents + manifest.splits.at("val").documents, 200);
  EXPECT_TRUE(has(tokens.out, fmt::format("train            {} documents, {} tokens",
                                          train.documents, train.tokens)))
      << tokens.out;
  EXPECT_TRUE(
      has(tokens.out, fmt::format("unigram entropy {:.4f} nats", train.unigram_entropy_nats)))
      << tokens.out;
  EXPECT_TRUE(has(tokens.out, "tokens/s")) << tokens.out;
}

TEST_F(TextToShards, ATokenizerIsReplacedOnlyWhenAskedAndItsDirectoryMade) {
  const Arguments training{"tokenizer", "--input",  "corpus.txt",         "--vocab-size",
                           "300",       "--output", "new/place/tok.model"};
  EXPECT_EQ(run(training).exit_code, 0);
  const std::string first = content_of(directory_ / "new/place/tok.model");
  Arguments other = training;
  other[4] = "310";
  const ProgramResult refused = run(other);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(has(refused.err, "new/place/tok.model: already exists")) << refused.err;
  EXPECT_TRUE(has(refused.err, "--overwrite")) << refused.err;
  EXPECT_EQ(content_of(directory_ / "new/place/tok.model"), first);
  other.push_back("--overwrite");
  EXPECT_EQ(run(other).exit_code, 0);
  EXPECT_NE(content_of(directory_ / "new/place/tok.model"), first);
}

TEST_F(TextToShards, OptionsReachTheShards) {
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  const ProgramResult tokens =
      tokenize({"--shard-tokens", "1000", "--bos", "--no-eos", "--seed", "9"});
  ASSERT_EQ(tokens.exit_code, 0) << tokens.err;
  const Manifest manifest = Manifest::load(directory_ / "data/manifest.json");
  EXPECT_EQ(manifest.splits.size(), 1u);
  EXPECT_EQ(manifest.splits.at("train").shards.front().tokens, 1000);
  EXPECT_EQ(manifest.options.at("prepend_bos"), true);
  EXPECT_EQ(manifest.options.at("append_eos"), false);
  EXPECT_EQ(manifest.options.at("seed"), 9);
}

// Each of the 200 documents has more than 64 bytes.
TEST_F(TextToShards, LongDocumentsAreCutWhereAsked) {
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  const auto documents = [&](const Arguments& more) {
    EXPECT_EQ(tokenize(more).exit_code, 0);
    return Manifest::load(directory_ / "data/manifest.json").splits.at("train").documents;
  };
  EXPECT_EQ(documents({}), 200);
  EXPECT_GE(documents({"--max-document-bytes", "64", "--overwrite"}), 400);
}

// Returns "3" of "trained on       3 lines, 2 KiB of 4 KiB".
int64_t lines_trained_on(const std::string& summary) {
  const std::string row = "trained on       ";
  const size_t at = summary.find(row);
  EXPECT_NE(at, std::string::npos) << summary;
  return std::stoll(summary.substr(at + row.size()));
}

TEST_F(TextToShards, OptionsReachTheTokenizer) {
  // Returns the output, and the file.
  const auto trained = [&](const Arguments& more) {
    Arguments arguments{"tokenizer", "--input",  "corpus.txt", "--vocab-size",
                        "290",       "--output", "tok",        "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::pair(lines_trained_on(result.out), content_of(directory_ / "tok.model"));
  };
  const auto [lines, file] = trained({});
  EXPECT_GT(trained({"--max-document-bytes", "16"}).first, lines);
  const Arguments sample{"--sample-bytes", "1500", "--seed", "1"},
      other_sample{"--sample-bytes", "1500", "--seed", "2"};
  const auto [sample_lines, sample_file] = trained(sample);
  EXPECT_LT(sample_lines, lines);
  EXPECT_EQ(trained(sample).second, sample_file);
  EXPECT_NE(trained(other_sample).second, sample_file);
  EXPECT_NE(trained({"--character-coverage", "0.98"}).second,
            trained({"--character-coverage", "1"}).second);
}

TEST_F(TextToShards, EarlierShardsAreReplacedOnlyWhenAsked) {
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  ASSERT_EQ(tokenize().exit_code, 0);
  const ProgramResult again = tokenize();
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(has(again.err, "data")) << again.err;
  EXPECT_EQ(tokenize({"--overwrite"}).exit_code, 0);
}

TEST_F(TextToShards, SeveralInputsAtOnceOrOneByOne) {
  write_corpus(directory_ / "more.txt", 10);
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  const auto documents = [&](const Arguments& inputs) {
    Arguments arguments{"tokenize", "--tokenizer", "tok.model", "--output", "data", "--overwrite"};
    arguments.insert(arguments.end(), inputs.begin(), inputs.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Manifest::load(directory_ / "data/manifest.json").splits.at("train").documents;
  };
  EXPECT_EQ(documents({"--input", "corpus.txt", "more.txt"}), 210);
  EXPECT_EQ(documents({"--input", "corpus.txt", "--input", "more.txt"}), 210);
}

TEST_F(TextToShards, TextThatIsNotUtf8IsRefusedOrSkipped) {
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  std::ofstream(directory_ / "bad.txt") << "good\n\nbad \xff byte\n\ngood";
  const ProgramResult refused = tokenize();
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(has(refused.err, "bad.txt")) << refused.err;
  const ProgramResult skipped = tokenize({"--on-bad-document", "skip", "--overwrite"});
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_TRUE(has(skipped.out, "documents        202")) << skipped.out;
  EXPECT_TRUE(has(skipped.out, "1 unreadable skipped")) << skipped.out;
}

TEST_F(TextToShards, WhatADocumentIsIsChosenAndTold) {
  write_corpus(directory_ / "more.md", 10);
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  const auto told = [&](const Arguments& choice, const std::string& documents,
                        const std::string& what) {
    Arguments arguments{"tokenize",  "--input",  "corpus.txt", "more.md",    "--tokenizer",
                        "tok.model", "--output", "data",       "--overwrite"};
    arguments.insert(arguments.end(), choice.begin(), choice.end());
    const ProgramResult result = run(arguments);
    EXPECT_TRUE(has(result.out, "documents        " + documents + " from 2 files, ")) << result.out;
    EXPECT_TRUE(has(result.out, "a document is    " + what + " (--document)\n")) << result.out;
  };
  told({}, "210", "a paragraph of plain text: a blank line ends it");
  told({"--document", "file"}, "2", "a file of plain text");
  told({"--document", "line"}, "630", "a line of plain text");
  EXPECT_EQ(run({"tokenize", "--input", "corpus.txt", "--as", "jsonl", "--document", "line",
                 "--tokenizer", "tok.model", "--output", "data", "--overwrite"})
                .exit_code,
            1);
  const ProgramResult wrong = tokenize({"--document", "chapter"});
  EXPECT_TRUE(has(wrong.err, "'chapter' is not one of: paragraph, file, line")) << wrong.err;
}

TEST_F(TextToShards, StandardInputIsTextLikeAnyOther) {
  ASSERT_EQ(train_tokenizer().exit_code, 0);
  ASSERT_EQ(tokenize().exit_code, 0);
  const std::string command = "gzip -c corpus.txt | " + program_to_test() +
                              " tokenize --input - --as text --tokenizer tok.model --output piped";
  const ProgramResult piped =
      run_program({"-c", command}, {.cwd = directory_.path(), .program = "/bin/sh"});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  const auto train = [&](const std::string& output) {
    return Manifest::load(directory_ / (output + "/manifest.json")).splits.at("train");
  };
  EXPECT_EQ(train("piped").documents, 200);
  EXPECT_EQ(train("piped").shards.front().hash, train("data").shards.front().hash);
}

}  // namespace
}  // namespace mpt::test
