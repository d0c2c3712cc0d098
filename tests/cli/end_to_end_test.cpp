// Text in, model out, only through the program: tokenizer, tokenize, train, eval, generate, export.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include <gtest/gtest.h>

#include "core/io/safetensors.h"
#include "support/draws.h"
#include "support/files.h"
#include "support/run_program.h"
#include "support/temp_directory.h"
#include "train/reports/metrics_log.h"

namespace mpt::test {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr const char* kConfig = R"({
  "name": "small", "seed": 3,
  "model": {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
            "vocab_size": 310},
  "data": {"train": "data/train_*.bin", "validation": "data/val_*.bin", "tokenizer": "data/tokenizer.model"},
  "batch": {"seq_len": 24, "tokens_per_step": 96},
  "optimizer": {"rule": "m_plus_adam", "lr_additive": 1e-2, "lr_multiplicative": 1e-2},
  "train": {"steps": 6},
  "eval": {"every_steps": 0, "tokens": 500},
  "checkpoint": {"every_steps": 3},
  "device": {"threads": 1}
})";

void write_corpus(const std::string& path) {
  const Arguments words{"weights", "gradients", "step", "model",    "of",
                        "the",     "token",     "loss", "rounding", "été"};
  std::ofstream file(path);
  Draws draws(5);
  for (int document = 0; document < 150; ++document) {
    for (int word = 0; word < 20; ++word)
      file << words[size_t(draws.index(10))] << (word % 7 == 6 ? ".\n" : " ");
    file << "\n\n";
  }
}

// Returns the number after a name in a summary.
double number_behind(const std::string& text, const std::string& name) {
  const size_t at = text.find(name);
  EXPECT_NE(at, std::string::npos) << name << " in " << text;
  return at == std::string::npos ? NAN : std::stod(text.substr(at + name.size()));
}

class EndToEnd : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<TempDirectory>();
    write_corpus(*directory_ / "corpus.txt");
    std::ofstream(*directory_ / "config.json") << kConfig;
    must({"tokenizer", "--input", "corpus.txt", "--vocab-size", "300", "--output", "small.model"});
    must({"tokenize", "--input", "corpus.txt", "--tokenizer", "small.model", "--output", "data",
          "--validation-fraction", "0.2"});
    training_ = must({"--config", "config.json"});
  }
  static void TearDownTestSuite() { directory_.reset(); }

  static ProgramResult run(const Arguments& arguments) {
    return run_program(arguments, {.cwd = directory_->path()});
  }
  static ProgramResult must(const Arguments& arguments) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments.front() << ": " << result.err;
    return result;
  }
  static ProgramResult eval(const Arguments& more = {}) {
    Arguments arguments{"eval", "--checkpoint", "runs/small", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return must(arguments);
  }
  static ProgramResult generate(const Arguments& more = {}, const std::string& threads = "1") {
    Arguments arguments{"generate",     "--checkpoint", "runs/small", "--prompt", "the model",
                        "--max-tokens", "10",           "--threads",  threads};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  static std::unique_ptr<TempDirectory> directory_;
  static ProgramResult training_;
};
std::unique_ptr<TempDirectory> EndToEnd::directory_;
ProgramResult EndToEnd::training_;

TEST_F(EndToEnd, TrainingLogsToStandardError) {
  EXPECT_EQ(training_.out, "");
  EXPECT_TRUE(has(training_.err, "complete at step 6 of 6")) << training_.err;
}

// Even if a run of that name exists.
TEST_F(EndToEnd, AProfileIsPrintedAndNothingWritten) {
  const std::string metrics = content_of(*directory_ / "runs/small/metrics.jsonl");
  for (const std::string name : {"small", "other"}) {
    const ProgramResult result =
        must({"--config", "config.json", "--set", "name=" + name, "--profile", "3"});
    EXPECT_TRUE(result.out.starts_with("operation ")) << result.out;
    EXPECT_TRUE(has(result.out, "\n  forward ")) << result.out;
    EXPECT_TRUE(has(result.out, "mean of 3 steps;")) << result.out;
  }
  EXPECT_EQ(content_of(*directory_ / "runs/small/metrics.jsonl"), metrics);
  EXPECT_FALSE(fs::exists(*directory_ / "runs/other"));
}

TEST_F(EndToEnd, AProfileMayBeLongerThanTheRun) {
  EXPECT_TRUE(has(must({"--config", "config.json", "--profile"}).out, "mean of 20 steps;"));
}

TEST_F(EndToEnd, PlanPrintsMemory) {
  const ProgramResult plan = must({"plan", "--config", "config.json"});
  EXPECT_TRUE(has(plan.out, "weights")) << plan.out;
  EXPECT_FALSE(fs::exists(*directory_ / "runs/other"));
}

TEST_F(EndToEnd, SamplesAreLogged) {
  const ProgramResult result =
      must({"--config", "config.json", "--set", "name=samples", "--set", "eval.samples_every=4",
            "--set", "eval.sample_tokens=3", "--set", R"(eval.sample_prompts=["the \"model"])"});
  for (const std::string step : {"4/6", "6/6"})
    EXPECT_TRUE(has(result.err, "step      " + step + R"( | sample "the \"model" -> ")"))
        << result.err;
  EXPECT_EQ(read_metrics(posix_file_system(), *directory_ / "runs/samples/samples.jsonl").size(),
            2u);
}

TEST_F(EndToEnd, EvalGivesTheLossOfTheRun) {
  const auto metrics = read_metrics(posix_file_system(), *directory_ / "runs/small/metrics.jsonl");
  const nlohmann::json& last = metrics.at(6);
  const ProgramResult result = eval();
  EXPECT_NEAR(number_behind(result.out, "val_loss"), last.at("val_loss").get<double>(), 5.1e-7);
  EXPECT_NEAR(number_behind(result.out, "val_perplexity"), last.at("val_perplexity").get<double>(),
              5.1e-5);
  EXPECT_EQ(number_behind(result.out, "tokens"), 21 * 24) << "500 tokens in whole sequences";
  EXPECT_EQ(number_behind(result.out, "step "), 6);
}

TEST_F(EndToEnd, EvalPrintsAnObjectToo) {
  const std::string text = eval().out;
  const auto printed = nlohmann::ordered_json::parse(eval({"--json"}).out);
  std::vector<std::string> keys;
  for (const auto& [key, unused] : printed.items()) keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"checkpoint", "step", "tokens", "val_loss", "val_loss_family",
                                      "val_perplexity", "val_bits_per_byte", "val_tokens"}));
  EXPECT_EQ(printed.at("step"), 6);
  EXPECT_EQ(printed.at("checkpoint"), "runs/small/checkpoints/step_00000006");
  for (const std::string key : {"tokens", "val_loss", "val_perplexity", "val_loss_family"})
    EXPECT_NEAR(printed.at(key).get<double>(), number_behind(text, "\n" + key + " "), 1e-4) << key;
}

TEST_F(EndToEnd, PathsThatAreNotUtf8ArePrintedAsJsonToo) {
  const std::string run = "runs/b\xff", shown = "runs/b\uFFFD/checkpoints/step_00000006";
  fs::copy(*directory_ / "runs/small", *directory_ / run, fs::copy_options::recursive);
  const auto printed = nlohmann::json::parse(must({"eval", "--checkpoint", run, "--json"}).out);
  EXPECT_EQ(printed.at("checkpoint"), shown);
  const auto list = nlohmann::json::parse(must({"checkpoint", "list", run, "--json"}).out);
  EXPECT_EQ(list.back().at("path"), shown);
  fs::remove_all(*directory_ / run);
}

TEST_F(EndToEnd, EvalDoesNotDependOnTheBatch) {
  const std::string out = eval({"--micro-batch-rows", "1"}).out;
  for (const char* rows : {"3", "7", "100000"})
    EXPECT_EQ(eval({"--micro-batch-rows", rows}).out, out);
}

// Packed rows have the same number of targets, so that only the n of the family's mean differs.
TEST_F(EndToEnd, EvalGivesTheFamilysMeanToo) {
  const auto metrics = read_metrics(posix_file_system(), *directory_ / "runs/small/metrics.jsonl");
  const auto family = [](const Arguments& more = {}) {
    return number_behind(eval(more).out, "val_loss_family");
  };
  const double loss = number_behind(eval().out, "val_loss");
  EXPECT_NEAR(family(), metrics.at(6).at("val_loss_family").get<double>(), 5.1e-7);
  EXPECT_NEAR(family({"--family-batch-rows", "1"}), loss * 21 / 22, 1.1e-6);
  EXPECT_NEAR(family({"--family-batch-rows", "7"}), loss * 3 / 4, 1.1e-6);
  EXPECT_NEAR(family({"--family-batch-rows", "21"}), loss / 2, 1.1e-6);
  EXPECT_NEAR(family({"--family-batch-rows", "1000"}), loss / 2, 1.1e-6);
}

TEST_F(EndToEnd, EvalTakesOtherDataCheckpointsAndBudgets) {
  const std::string own = eval().out;
  EXPECT_NE(eval({"--data", "data/train_*.bin"}).out, own);
  EXPECT_EQ(number_behind(eval({"--tokens", "1"}).out, "tokens"), 24);
  const ProgramResult earlier =
      must({"eval", "--checkpoint", "runs/small/checkpoints/step_00000003", "--threads", "1"});
  EXPECT_EQ(number_behind(earlier.out, "step "), 3);
  const ProgramResult missing =
      run({"eval", "--checkpoint", "runs/small", "--data", "nowhere_*.bin"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(has(missing.err, "nowhere_*.bin")) << missing.err;
}

TEST_F(EndToEnd, GenerateWritesTheTextAlone) {
  const ProgramResult result = generate({"--temperature", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("the model")) << result.out;
  EXPECT_TRUE(result.out.ends_with("\n"));
  EXPECT_TRUE(has(result.err, "tokens/s")) << result.err;
  EXPECT_EQ(generate({"--temperature", "0"}, "2").out, result.out);
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(EndToEnd, EvalCountsRightAnswers) {
  const auto piqa = [](const std::string& goal, int label) {
    return nlohmann::json{{"goal", goal}, {"sol1", "the step"}, {"sol2", "loss"}, {"label", label}};
  };
  std::ofstream(*directory_ / "piqa.jsonl") << piqa("a", 0) << "\n" << piqa("model of", 1) << "\n";
  std::ofstream(*directory_ / "more.jsonl") << piqa("the", 1) << "\n";
  std::ofstream(*directory_ / "words.jsonl") << R"({"text": "weights of the model"})";
  const Arguments tasks{
      "--tasks",   "piqa=piqa.jsonl", "piqa=more.jsonl", "--tasks", "lambada_openai=words.jsonl",
      "--details", "details.jsonl"};
  Arguments as_json = tasks;
  as_json.push_back("--json");
  const nlohmann::json printed = nlohmann::json::parse(eval(as_json).out);
  EXPECT_EQ(printed.at("step"), 6);
  EXPECT_FALSE(printed.contains("val_loss"));
  const auto details = lines_of(content_of(*directory_ / "details.jsonl"));
  ASSERT_EQ(details.size(), 4u);
  double right = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(details[i].at("place"), i < 2 ? fmt::format("piqa.jsonl:{}", i + 1) : "more.jsonl:1");
    EXPECT_EQ(details[i].at("log_likelihoods").size(), 2u);
    right += details[i].at("chosen") == details[i].at("answer") ? 1 : 0;
  }
  const nlohmann::json& piqa_means = printed.at("tasks").at("piqa");
  EXPECT_EQ(piqa_means.at("examples"), 3);
  EXPECT_DOUBLE_EQ(piqa_means.at("acc").get<double>(), right / 3);
  const double likelihood = details[3].at("log_likelihoods")[0];
  EXPECT_DOUBLE_EQ(printed.at("tasks").at("lambada_openai").at("perplexity").get<double>(),
                   std::exp(-likelihood));
  const std::string text = eval(tasks).out;
  EXPECT_TRUE(has(text, "on 3 examples\nlambada_openai     acc ")) << text;
  EXPECT_TRUE(
      has(eval({"--tasks", "piqa=piqa.jsonl", "--data", "data/val_*.bin"}).out, "val_loss"));
}

TEST_F(EndToEnd, NoOutputReplacesAnInput) {
  const std::string question = R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 0})";
  std::ofstream(*directory_ / "question.jsonl") << question;
  ProgramResult result = run({"eval", "--checkpoint", "runs/small", "--tasks",
                              "piqa=question.jsonl", "--details", "question.jsonl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(has(result.err, "question.jsonl: exists and is not an earlier file of --details"))
      << result.err;
  EXPECT_EQ(content_of(*directory_ / "question.jsonl"), question);

  const std::string metrics = content_of(*directory_ / "runs/small/metrics.jsonl");
  result = run({"report", "runs/small", "--output", "runs/small/metrics.jsonl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(has(result.err, "metrics.jsonl: exists and is not a page")) << result.err;
  EXPECT_EQ(content_of(*directory_ / "runs/small/metrics.jsonl"), metrics);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(run({"report", "runs/small", "--output", "page.html"}).exit_code, 0);
}

TEST_F(EndToEnd, EvalTakesSomeExamplesAndBos) {
  std::ofstream(*directory_ / "two.jsonl") << R"({"text": "weights of the model"})"
                                           << "\n"
                                           << R"({"text": "the loss of the step"})"
                                           << "\n";
  const auto task = [](Arguments more) {
    more.insert(more.end(), {"--tasks", "lambada_openai=two.jsonl", "--json"});
    return nlohmann::json::parse(eval(more).out).at("tasks").at("lambada_openai");
  };
  EXPECT_EQ(task({}).at("examples"), 2);
  EXPECT_EQ(task({"--task-examples", "1"}).at("examples"), 1);
  EXPECT_NE(task({"--bos"}).at("perplexity"), task({}).at("perplexity"));
}

TEST_F(EndToEnd, EvalRefusesWhatIsNoExample) {
  std::ofstream(*directory_ / "bad.jsonl") << "{\"text\": \"a b\"}\n{\"text\": 3}\n";
  const ProgramResult result = run({"eval", "--checkpoint", "runs/small", "--tasks",
                                    "lambada_openai=bad.jsonl", "--details", "never.jsonl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(has(result.err, "bad.jsonl:2: text: expected a text, found the number 3"))
      << result.err;
  EXPECT_FALSE(fs::exists(*directory_ / "never.jsonl"));
}

TEST_F(EndToEnd, GenerateIsAFunctionOfTheSeed) {
  const auto text = [](const std::string& seed) {
    return generate({"--temperature", "3", "--seed", seed}).out;
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

// With only one candidate, the draw is that token at any temperature.
TEST_F(EndToEnd, GenerateDrawsFromTheLikeliestTokensIfAsked) {
  const std::string likeliest = generate({"--temperature", "0"}).out;
  EXPECT_NE(generate({"--temperature", "3"}).out, likeliest);
  EXPECT_EQ(generate({"--temperature", "3", "--top-k", "1"}).out, likeliest);
  EXPECT_EQ(generate({"--temperature", "3", "--top-p", "1e-6"}).out, likeliest);
}

TEST_F(EndToEnd, GeneratePrependsBosIfAsked) {
  const auto prompt_tokens = [](Arguments more) {
    more.emplace_back("--json");
    return lines_of(generate(more).out).at(0).at("prompt_tokens").get<int64_t>();
  };
  EXPECT_EQ(prompt_tokens({"--bos"}), prompt_tokens({}) + 1);
}

TEST_F(EndToEnd, GenerateTakesPromptsFromFilesAndStandardInput) {
  std::ofstream(*directory_ / "prompts.txt", std::ios::binary) << "the\r\n\nthe model";
  const Arguments base{"generate", "--checkpoint",  "runs/small", "--threads", "1", "--max-tokens",
                       "5",        "--temperature", "2",          "--json"};
  const auto json_lines = [&](const Arguments& more, const std::string& input = "") {
    Arguments all = base;
    all.insert(all.end(), more.begin(), more.end());
    const std::string command = "cd \"$D\" && \"$P\" \"$@\" < \"$I\"";
    Arguments shell{"-c", command, "sh"};
    shell.insert(shell.end(), all.begin(), all.end());
    const ProgramResult result =
        run_program(shell, {.env = {{"P", MPT_PROGRAM},
                                    {"D", directory_->path()},
                                    {"I", input.empty() ? "/dev/null" : *directory_ / input}},
                            .program = "/bin/sh"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return lines_of(result.out);
  };
  const std::vector<nlohmann::json> of_file =
      json_lines({"--prompts", "prompts.txt", "--samples", "2"});
  ASSERT_EQ(of_file.size(), 6u);
  const std::vector<std::string> prompts{"the", "", "the model"};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(of_file[i].at("prompt"), prompts[i / 2]);
    EXPECT_EQ(of_file[i].at("sample"), i % 2);
    EXPECT_LE(of_file[i].at("new_tokens"), 5);
  }
  EXPECT_NE(of_file[0].at("text"), of_file[1].at("text"));
  EXPECT_EQ(json_lines({"--prompts", "-", "--samples", "2"}, "prompts.txt"), of_file);
  EXPECT_EQ(
      json_lines({"--prompt", "the", "--prompt", "", "--prompt", "the model", "--samples", "2"}),
      of_file);
  EXPECT_EQ(json_lines({"--prompt", "the"}).front(), of_file[0]);

  std::ofstream(*directory_ / "marked.txt", std::ios::binary) << "\xEF\xBB\xBFthe\r\n\nthe model";
  EXPECT_EQ(json_lines({"--prompts", "marked.txt", "--samples", "2"}), of_file);
  EXPECT_EQ(json_lines({"--prompts", "-", "--samples", "2"}, "marked.txt"), of_file);
}

TEST_F(EndToEnd, SeveralTextsHaveHeadings) {
  const ProgramResult one = generate({"--temperature", "2"});
  const ProgramResult several = generate({"--temperature", "2", "--samples", "2"});
  EXPECT_EQ(several.out.find("==> prompt 1, sample 1 <==\n" + one.out +
                             "\n==> prompt 1, sample 2 <==\nthe model"),
            0u)
      << several.out;
}

TEST_F(EndToEnd, GenerateRefusesWhatCannotBe) {
  std::ofstream(*directory_ / "long.txt") << "a\n" << std::string(500, 'x') << "\n";
  std::ofstream(*directory_ / "none.txt");
  std::ofstream(*directory_ / "mark.txt") << "\xEF\xBB\xBF";
  for (const auto& [file, message] :
       std::vector<std::pair<std::string, std::string>>{{"long.txt", "long.txt:2: the prompt has"},
                                                        {"none.txt", "none.txt: is empty"},
                                                        {"mark.txt", "mark.txt: is empty"}}) {
    const ProgramResult result = run({"generate", "--checkpoint", "runs/small", "--prompts", file});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(has(result.err, message)) << result.err;
  }

  const ProgramResult long_prompt =
      run({"generate", "--checkpoint", "runs/small", "--prompt", std::string(500, 'x')});
  EXPECT_EQ(long_prompt.exit_code, 1);
  EXPECT_TRUE(has(long_prompt.err, "at most 24")) << long_prompt.err;
  const ProgramResult tokenizer = generate({"--tokenizer", "config.json"});
  EXPECT_EQ(tokenizer.exit_code, 1);
  EXPECT_TRUE(
      has(tokenizer.err, "config.json: read as tokenizer.json: batch: the key is not read here"))
      << tokenizer.err;
}

TEST_F(EndToEnd, GenerateEndsQuietlyWhenNobodyReads) {
  const std::string command =
      R"(cd "$D" && { "$P" generate --checkpoint runs/small --prompt x --threads 1; echo "status $?" >&2; } | true)";
  const ProgramResult result =
      run_program({"-c", command},
                  {.env = {{"P", MPT_PROGRAM}, {"D", directory_->path()}}, .program = "/bin/sh"});
  EXPECT_TRUE(has(result.err, "status 0")) << result.err;
}

TEST_F(EndToEnd, ExportWritesADirectory) {
  const Arguments arguments{"export", "--checkpoint", "runs/small", "--output", "exported"};
  const ProgramResult result = must(arguments);
  EXPECT_TRUE(has(result.out, "exported: step 6 of small")) << result.out;
  const SafetensorsReader weights(posix_file_system(), *directory_ / "exported/model.safetensors");
  EXPECT_EQ(weights.at("lm_head.weight").shape, (std::vector<int64_t>{310, 16}));
  EXPECT_EQ(weights.at("lm_head.weight").type, StoredType::kBF16);
  EXPECT_TRUE(fs::exists(*directory_ / "exported/tokenizer.model"));

  const ProgramResult again = run(arguments);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(has(again.err, "--overwrite")) << again.err;
  must({"export", "--checkpoint", "runs/small", "--output", "exported", "--overwrite"});
}

TEST_F(EndToEnd, ExportConfiguresBosIfAsked) {
  const auto adds_bos = [](const Arguments& more) {
    Arguments arguments{"export",   "--checkpoint", "runs/small",
                        "--output", "with_bos",     "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    must(arguments);
    return nlohmann::json::parse(content_of(*directory_ / "with_bos/tokenizer_config.json"))
        .at("add_bos_token");
  };
  EXPECT_EQ(adds_bos({}), false);
  EXPECT_EQ(adds_bos({"--bos"}), true);
}

// FP32 matrices take two bytes more per element than BF16 ones: for the embedding and head together
// 2 * 310 * 16.
TEST_F(EndToEnd, ExportWritesMatricesOfTheTypeAsked) {
  const auto size = [](const Arguments& more) {
    Arguments arguments{"export", "--checkpoint", "runs/small", "--format",
                        "gguf",   "--output",     "sized.gguf", "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    must(arguments);
    return fs::file_size(*directory_ / "sized.gguf");
  };
  EXPECT_GE(size({"--type", "f32"}), size({}) + 2 * (2 * 310 * 16));
}

}  // namespace
}  // namespace mpt::test
