// Examples of data sets as read by lm-eval: Python's str methods, fields, and refusals.
//
// tests/golden/tasks/ is made by make_tasks_golden.py.
#include "evaluation/tasks/task_examples.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/io/file_system.h"
#include "evaluation/tasks/python_text.h"
#include "evaluation/tasks/task_requests.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

using nlohmann::json;

std::string golden_file(const std::string& name) { return MPT_SOURCE_DIR "/tests/golden/" + name; }

std::string joined_words(const std::string& text) {
  std::string all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    all += python_capitalize(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

TEST(PythonText, IsWhatPythonMakesOfIt) {
  const json cases =
      json::parse(posix_file_system().read_file(golden_file("tasks/python_text.json")));
  ASSERT_GT(cases.size(), 50u);
  for (const json& c : cases) {
    const std::string text = c.at("text");
    EXPECT_EQ(python_capitalize(text), c.at("capitalize")) << text;
    EXPECT_EQ(joined_words(text), c.at("title")) << text;
    EXPECT_EQ(python_strip(text), c.at("strip")) << text;
    EXPECT_EQ(python_rstrip(text), c.at("rstrip")) << text;
    EXPECT_EQ(python_length(text), c.at("len")) << text;
  }
}

class TaskExamples : public testing::Test {
 protected:
  std::vector<TaskExample> read(TaskKind kind, const std::string& text, int64_t most = 0) {
    std::ofstream(directory_ / "examples.jsonl", std::ios::binary) << text;
    return read_task(kind, {directory_ / "examples.jsonl"}, most);
  }
  TempDirectory directory_;
};

TEST_F(TaskExamples, HellaswagLosesBracketsAndDoubleSpaces) {
  const auto examples = read(
      TaskKind::kHellaswag,
      R"({"activity_label": "Home", "ctx_a": "[header] How [title] Fill.", "ctx_b": "sHE [s] is", )"
      R"("endings": ["[step] a  b   c", "[x", "d [e\nf] g ]"], "label": "2", "ind": 4})");
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_EQ(examples[0].context, "Home: How. Fill. She is");
  EXPECT_EQ(examples[0].continuations,
            (std::vector<std::string>{"  a b  c", " [x", " d [e\nf] g ]"}));
  EXPECT_EQ(examples[0].lengths, (std::vector<int64_t>{7, 2, 11}));
  EXPECT_EQ(examples[0].answer, 2);
}

// Quadratic time would be half an hour.
TEST_F(TaskExamples, ManyBracketsTakeTimeInProportion) {
  const std::string brackets(1'000'000, '[');
  const auto examples =
      read(TaskKind::kHellaswag, R"({"activity_label": "A", "ctx_a": "b", "ctx_b": "c", )"
                                 R"("endings": [")" +
                                     brackets + R"(", "d"], "label": "1"})");
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_EQ(examples[0].continuations[0], " " + brackets);
}

TEST_F(TaskExamples, TheOthersAreQuestionsAndLastWords) {
  const auto arc =
      read(TaskKind::kArcEasy,
           R"({"question": "Why?", "choices": {"text": ["é", "b"], "label": ["1", "2"]}, )"
           R"("answerKey": "2"})");
  EXPECT_EQ(arc[0].context, "Question: Why?\nAnswer:");
  EXPECT_EQ(arc[0].continuations, (std::vector<std::string>{" é", " b"}));
  EXPECT_EQ(arc[0].lengths, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(arc[0].answer, 1);
  const auto piqa = read(TaskKind::kPiqa, R"({"goal": "g", "sol1": "x", "sol2": "y", "label": 1})");
  EXPECT_EQ(piqa[0].context, "Question: g\nAnswer:");
  EXPECT_EQ(piqa[0].answer, 1);
  const auto lambada = read(TaskKind::kLambadaOpenai,
                            "{\"text\": \"a b  c\"}\r\n\n{\"text\": \"word\"}\n{\"text\": \"a \"}");
  ASSERT_EQ(lambada.size(), 3u);
  EXPECT_EQ(lambada[0].context, "a b ");
  EXPECT_EQ(lambada[0].continuations, std::vector<std::string>{" c"});
  EXPECT_EQ(lambada[1].context, "");
  EXPECT_EQ(lambada[1].continuations, std::vector<std::string>{" word"});
  EXPECT_TRUE(lambada[1].place.ends_with("examples.jsonl:3")) << lambada[1].place;
  EXPECT_EQ(lambada[2].continuations, std::vector<std::string>{" "});
  EXPECT_EQ(
      read(TaskKind::kLambadaOpenai, "{\"text\": \"a\"}\n{\"text\": \"b\"}\nnot read", 2).size(),
      2u);
}

TEST_F(TaskExamples, OtherFieldsMayHoldAnything) {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  for (const char* const other :
       {R"("score": 1e999)", R"("score": NaN)", R"("title": "\ud83d")", R"("a": 1, "a": 2)"})
    EXPECT_EQ(
        read(TaskKind::kLambadaOpenai, R"({"text": "a b", )" + std::string(other) + "}").size(), 1u)
        << other;
  EXPECT_EQ(read(TaskKind::kLambadaOpenai, R"({"text": "a b", "deep": )" + deep + "}").size(), 1u);
}

TEST_F(TaskExamples, WhatIsWrongIsNamedWithItsLine) {
  const std::string good = R"({"goal": "g", "sol1": "x", "sol2": "y", "label": 1})"
                           "\n";
  const auto refused = [&](TaskKind kind, const std::string& text) {
    return [=, this] { read(kind, text); };
  };
  EXPECT_ERROR(refused(TaskKind::kPiqa, good + "{")(), "examples.jsonl:2: is not JSON",
               "(a line of piqa is a JSON object with goal, sol1");
  EXPECT_ERROR(refused(TaskKind::kPiqa, "[]")(), "expected an object, found a list");
  EXPECT_ERROR(refused(TaskKind::kPiqa, "{\"goal\": \"\xff\"}")(),
               ":1: goal is not UTF-8 at byte 0");
  EXPECT_ERROR(refused(TaskKind::kLambadaOpenai, R"({"text": "a \ud83d"})")(),
               ":1: text has half of a surrogate pair at byte 2, \\ud83d");
  EXPECT_ERROR(refused(TaskKind::kPiqa, R"({"goal": "g"})")(), "sol1 is missing");
  EXPECT_ERROR(refused(TaskKind::kPiqa, R"({"goal": "g", "sol1": 3})")(),
               "sol1: expected a text, found the number 3");
  EXPECT_ERROR(refused(TaskKind::kPiqa, R"({"goal": "g", "sol1": "", "sol2": "", "label": 2})")(),
               "label: expected a number from 0 to 1, found the number 2");
  EXPECT_ERROR(refused(TaskKind::kPiqa, R"({"goal": "g", "sol1": "", "sol2": "", "label": -1})")(),
               "found the number -1");
  EXPECT_ERROR(refused(TaskKind::kHellaswag,
                       R"({"activity_label": "", "ctx_a": "", "ctx_b": "", "endings": []})")(),
               "endings: expected 1 to 64 texts, found 0");
  EXPECT_ERROR(refused(TaskKind::kHellaswag, R"({"activity_label": "", "ctx_a": "", "ctx_b": "", )"
                                             R"("endings": ["a"], "label": ""})")(),
               "label: expected a number from 0 to 0, found the string \"\"");
  EXPECT_ERROR(refused(TaskKind::kHellaswag, R"({"activity_label": "", "ctx_a": "", "ctx_b": "", )"
                                             R"("endings": ["a", 1], "label": ""})")(),
               "endings: expected texts, found among them the number 1");
  EXPECT_ERROR(refused(TaskKind::kArcEasy, R"({"question": {"stem": "q"}, "choices": []})")(),
               "choices: expected an object of text and label, found a list");
  EXPECT_ERROR(
      refused(
          TaskKind::kArcEasy,
          R"({"question": "", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"})")(),
      "answerKey: expected one of choices.label, the list [\"A\"], found the string \"B\"");
  EXPECT_ERROR(
      refused(TaskKind::kArcEasy,
              R"({"question": "", "choices": {"text": ["a"], "label": []}, "answerKey": "B"})")(),
      "label: expected 1 to 64");
  EXPECT_ERROR(refused(TaskKind::kLambadaOpenai, "\n\n")(), "has no example of lambada_openai");
  EXPECT_ERROR(refused(TaskKind::kLambadaOpenai, std::string((1 << 20) + 1, ' '))(),
               "examples.jsonl:1: the line is longer than 1.0 MiB");
  EXPECT_ERROR(read_task(TaskKind::kPiqa, {"gone.jsonl"}, 0), "gone.jsonl: no such file");
}

// --- tokens --------------------------------------------------------------------------------------

TEST(TaskRequests, WhiteSpaceMovesToTheContinuation) {
  const Tokenizer tokenizer = Tokenizer::load(golden_file("subword/gpt2.json"));
  const RequestOptions options{.context = 100};
  const TaskRequest request = encode_request(tokenizer, "the model \t", " x", options);
  const std::vector<int32_t> whole = tokenizer.encode("the model \t x"),
                             context = tokenizer.encode("the model");
  EXPECT_EQ(request.tokens, whole);
  EXPECT_EQ(request.continuation, std::ssize(whole) - std::ssize(context));
}

TEST(TaskRequests, LongContextsLoseTheirBeginning) {
  const Tokenizer tokenizer = Tokenizer::load(golden_file("subword/gpt2.json"));
  const TaskRequest whole =
      encode_request(tokenizer, "the weights of the model are", " lost", {.context = 100});
  EXPECT_FALSE(whole.truncated);
  const int64_t fits = std::ssize(whole.tokens) - 1;
  EXPECT_FALSE(encode_request(tokenizer, "the weights of the model are", " lost", {.context = fits})
                   .truncated);
  const TaskRequest cut =
      encode_request(tokenizer, "the weights of the model are", " lost", {.context = fits - 1});
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.tokens, std::vector<int32_t>(whole.tokens.begin() + 1, whole.tokens.end()));
  EXPECT_EQ(cut.continuation, whole.continuation);
}

TEST(TaskRequests, BosOrEosStandsForAnEmptyContext) {
  const Tokenizer gpt2 = Tokenizer::load(golden_file("subword/gpt2.json")),
                  llama3 = Tokenizer::load(golden_file("subword/llama3.json"));
  EXPECT_EQ(encode_request(gpt2, "", " a", {.context = 9}).tokens.front(), gpt2.eos_id());
  EXPECT_EQ(encode_request(llama3, "", " a", {.context = 9}).tokens.front(), llama3.bos_id());
  const TaskRequest with_bos =
      encode_request(llama3, "the", " a", {.context = 9, .prepend_bos = true});
  EXPECT_EQ(with_bos.tokens.front(), llama3.bos_id());
  EXPECT_EQ(with_bos.continuation,
            encode_request(llama3, "the", " a", {.context = 9}).continuation);
  EXPECT_ERROR(encode_request(gpt2, "a", " b", {.context = 9, .prepend_bos = true}), "has no BOS");
}

TEST(TaskRequests, WhatStopsLmEvalIsRefused) {
  const Tokenizer tokenizer = Tokenizer::load(golden_file("subword/gpt2.json"));
  EXPECT_ERROR(encode_request(tokenizer, " ", " a", {.context = 9}), "only white space");
  EXPECT_ERROR(encode_request(tokenizer, "a", "", {.context = 9}), "has no token of its own");
  EXPECT_ERROR(encode_request(tokenizer, "a", "bcdefghijklmnopqrst", {.context = 3}),
               "a continuation has", "the model reads 3 at once");
}

TEST(TaskRequests, TasksHaveOneForEachContinuation) {
  const Tokenizer tokenizer = Tokenizer::load(golden_file("subword/gpt2.json"));
  const TaskFiles files{TaskKind::kArcEasy, {golden_file("tasks/arc_easy.jsonl")}, 2};
  const Task task = load_task(files, tokenizer, {.context = 100});
  ASSERT_EQ(task.examples.size(), 2u);
  EXPECT_EQ(task.examples[1].first, 4);
  EXPECT_EQ(task.examples[1].lengths, (std::vector<int64_t>{1, 1, 2}));
  EXPECT_TRUE(task.examples[1].place.ends_with("arc_easy.jsonl:2")) << task.examples[1].place;
  EXPECT_EQ(task.requests.size(), 7u);
  EXPECT_ERROR(load_task(files, tokenizer, {.context = 1}), "arc_easy.jsonl:1: a continuation has");
}

}  // namespace
}  // namespace mpt::test
