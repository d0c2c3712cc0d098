// tokenizer.json and tiktoken files through the verbs: text to shards, a run, generated text, an
// export and its import.
#include "cli/bad_input_world.h"

namespace mpt::test {
namespace {

using nlohmann::json;

std::string golden(const std::string& name) {
  return MPT_SOURCE_DIR "/tests/golden/subword/" + name;
}

class SubwordVerbs : public BadInput {
 protected:
  std::string run(const Arguments& arguments) {
    const ProgramResult result = run_program(arguments, {.cwd = scene_.path()});
    EXPECT_EQ(result.exit_code, 0) << fmt::format("{}\n", fmt::join(arguments, " ")) << result.err;
    errors_ = result.err;
    return result.out;
  }
  void train_on(const std::string& tokenizer, const std::string& copy) {
    run({"tokenize", "--input", "corpus.txt", "--tokenizer", tokenizer, "--output", "words",
         "--validation-fraction", "0.2"});
    const json manifest = json::parse(scene_.read("words/manifest.json"));
    EXPECT_EQ(manifest.at("tokenizer").at("file"), copy);
    run({"--config", "config.json", "--set", "name=words", "--set", "model.vocab_size=450", "--set",
         "data.train=words/train_*.bin", "--set", "data.validation=words/val_*.bin", "--set",
         "data.tokenizer=" + tokenizer});
    EXPECT_EQ(scene_.read("runs/words/" + copy), scene_.read("words/" + copy));
    EXPECT_EQ(run({"--config", "config.json", "--set", "name=words", "--set",
                   "model.vocab_size=450", "--set", "data.train=words/train_*.bin", "--set",
                   "data.validation=words/val_*.bin", "--set", "data.tokenizer=words/" + copy,
                   "--set", "train.steps=5", "--resume", "latest"}),
              "");
  }
  [[nodiscard]] bool is_there(const std::string& file) const {
    return std::filesystem::exists(scene_ / file);
  }

  Scene scene_{*world_};
  std::string errors_;
};

TEST_F(SubwordVerbs, ATokenizerJsonGoesWithItsModel) {
  train_on(golden("llama3.json"), "tokenizer.json");
  const std::string file = content_of(golden("llama3.json"));
  EXPECT_EQ(scene_.read("words/tokenizer.json"), file);
  const auto text = [&](const std::string& checkpoint) {
    return run({"generate", "--checkpoint", checkpoint, "--prompt", "abc é", "--max-tokens", "12"});
  };
  EXPECT_TRUE(text("runs/words").starts_with("abc é"));
  run({"export", "--checkpoint", "runs/words", "--output", "out"});
  EXPECT_NE(errors_.find("puts BOS before a text"), std::string::npos) << errors_;
  EXPECT_EQ(scene_.read("out/tokenizer.json"), file);
  EXPECT_FALSE(is_there("out/tokenizer.model"));
  const json config = json::parse(scene_.read("out/tokenizer_config.json"));
  EXPECT_EQ(config.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(config.at("bos_token"), "<|begin_of_text|>");
  EXPECT_EQ(config.at("eos_token"), "<|end_of_text|>");
  const std::string said = run({"import", "out", "--output", "back"});
  EXPECT_NE(said.find("tokenizer.json\n"), std::string::npos) << said;  // no BOS, as in the data
  EXPECT_EQ(scene_.read("back/tokenizer.json"), file);
  EXPECT_EQ(text("back"), text("runs/words"));
}

TEST_F(SubwordVerbs, ATiktokenFileGoesWithItsModel) {
  train_on(golden("cl100k_base.tiktoken"), "tokenizer.tiktoken");
  run({"generate", "--checkpoint", "runs/words", "--prompt", "abc", "--max-tokens", "4"});
  run({"export", "--checkpoint", "runs/words", "--output", "out"});
  EXPECT_NE(errors_.find("transformers does not read tiktoken"), std::string::npos) << errors_;
  EXPECT_EQ(scene_.read("out/tokenizer.tiktoken"), content_of(golden("cl100k_base.tiktoken")));
  EXPECT_EQ(json::parse(scene_.read("out/tokenizer.tiktoken.json")),
            json::parse(content_of(golden("cl100k_base.tiktoken.json"))));
  run({"import", "out", "--output", "back"});
  EXPECT_EQ(scene_.read("back/tokenizer.tiktoken"), scene_.read("words/tokenizer.tiktoken"));
}

TEST_F(SubwordVerbs, SpecialTokensOfADocumentAreTextIfAsked) {
  scene_.write("one.txt", "a<|endoftext|>b\n");
  const auto tokens = [&](const Arguments& more) {
    Arguments all{"tokenize",          "--input",  "one.txt", "--tokenizer",
                  golden("gpt2.json"), "--output", "shards",  "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    run(all);
    const json manifest = json::parse(scene_.read("shards/manifest.json"));
    EXPECT_EQ(manifest.at("options").at("special_tokens"), more.empty() ? "match" : more.back());
    return manifest.at("splits").at("train").at("tokens").get<int64_t>();
  };
  EXPECT_EQ(tokens({}), 4);  // a, the token, b, EOS
  EXPECT_GT(tokens({"--special-tokens", "text"}), 6);
}

TEST_F(SubwordVerbs, AnotherKindReplacesTheTokenizerOfADirectory) {
  run({"tokenize", "--input", "corpus.txt", "--tokenizer", golden("gpt2.json"), "--output", "data",
       "--overwrite"});
  EXPECT_TRUE(is_there("data/tokenizer.json"));
  EXPECT_FALSE(is_there("data/tokenizer.model"));
}

TEST_F(SubwordVerbs, GgufFilesHoldATokenizerThatLlamaCppKnows) {
  const Arguments verb{"export", "--checkpoint", "runs/words", "--format",
                       "gguf",   "--output",     "words.gguf"};
  train_on(golden("gpt2.json"), "tokenizer.json");
  run(verb);
  EXPECT_NE(scene_.read("words.gguf").find("tokenizer.ggml.merges"), std::string::npos);
}

TEST_F(SubwordVerbs, GgufFilesHoldNoTiktokenFile) {
  train_on(golden("cl100k_base.tiktoken"), "tokenizer.tiktoken");
  const ProgramResult result = run_program(
      {"export", "--checkpoint", "runs/words", "--format", "gguf", "--output", "words.gguf"},
      {.cwd = scene_.path()});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("tiktoken is not written to GGUF"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace mpt::test
