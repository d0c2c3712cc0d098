// Sampling, streaming of text, and the generation loop.
#include "evaluation/generate.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "core/random.h"
#include "core/text/utf8.h"
#include "data/manifest.h"
#include "evaluation/text_stream.h"
#include "support/expect_error.h"
#include "support/model_checkpoint.h"
#include "support/temp_directory.h"
#include "weights/model_tokenizer.h"

namespace mpt::test {
namespace {

using Tokens = std::vector<int32_t>;

// --- sample_token --------------------------------------------------------------------------------

TEST(SampleToken, TemperatureZeroTakesTheMostLikely) {
  const std::vector<float> logits{0.5f, -1, 3, 2.9f, 3};
  for (int64_t position = 0; position < 20; ++position)
    EXPECT_EQ(sample_token(logits, {.temperature = 0}, position), 2) << "the first of equals";
  EXPECT_EQ(sample_token(std::vector<float>{-7}, {.temperature = 0}, 0), 0);
}

TEST(SampleToken, TopOneAndTinyTemperaturesTakeTheMostLikelyToo) {
  const std::vector<float> logits{0.5f, -1, 3, 2.9f, 3};
  for (int64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(sample_token(logits, {.temperature = 5, .top_k = 1}, position), 2);
    for (const double temperature : {1e-3, 1e-300, 5e-324}) {
      const int32_t token = sample_token(logits, {.temperature = temperature}, position);
      EXPECT_TRUE(token == 2 || token == 4) << temperature;
    }
  }
}

// The first of two equal tokens is chosen exactly if the draw is below one half.
TEST(SampleToken, TheDrawIsPhiloxOfSeedAndPosition) {
  const std::vector<float> logits{1, 1};
  int first = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{0xFFFFFFFF00000001}}) {
    for (uint32_t position = 0; position < 100; ++position) {
      const uint32_t word =
          RandomCounter{
              .seed = seed, .tensor = 0, .row = position, .step = 0, .stream = kSamplingStream}
              .word(0);
      const int32_t token = sample_token(logits, {.seed = seed}, position);
      EXPECT_EQ(token, word < 0x80000000u ? 0 : 1);
      first += token == 0;
    }
  }
  EXPECT_GT(first, 60);
  EXPECT_LT(first, 140);
}

std::vector<double> frequencies(const std::vector<float>& logits, const SamplingOptions& options,
                                int64_t draws) {
  std::vector<double> counts(logits.size());
  for (int64_t position = 0; position < draws; ++position)
    counts[size_t(sample_token(logits, options, position))] += 1;
  for (double& count : counts) count /= double(draws);
  return counts;
}

void expect_softmax(const std::vector<float>& logits, const SamplingOptions& options,
                    const std::vector<bool>& allowed) {
  constexpr int64_t kDraws = 20000;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    total += allowed[i] ? std::exp(double(logits[i]) / options.temperature) : 0;
  const std::vector<double> found = frequencies(logits, options, kDraws);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = allowed[i] ? std::exp(double(logits[i]) / options.temperature) / total : 0;
    EXPECT_NEAR(found[i], p, 5 * std::sqrt(p * (1 - p) / double(kDraws))) << i;
  }
}

TEST(SampleToken, FrequenciesAreTheSoftmax) {
  const std::vector<float> logits{0, 1, -1, 2, 0.5f};
  expect_softmax(logits, {.seed = 3}, {true, true, true, true, true});
  expect_softmax(logits, {.temperature = 0.5, .seed = 4}, {true, true, true, true, true});
  expect_softmax(logits, {.temperature = 2, .seed = 5}, {true, true, true, true, true});
}

TEST(SampleToken, TopKLeavesTheMostLikely) {
  const std::vector<float> logits{0, 1, -1, 2, 0.5f};
  expect_softmax(logits, {.top_k = 3, .seed = 6}, {false, true, false, true, true});
  expect_softmax(logits, {.top_k = 5, .seed = 7}, {true, true, true, true, true});
  expect_softmax(logits, {.top_k = 6, .seed = 8}, {true, true, true, true, true});
  expect_softmax({1, 1, 1, 1}, {.top_k = 2, .seed = 9}, {true, true, false, false});
}

// Probabilities 8/15, 4/15, 2/15, 1/15 of tokens 3, 1, 4, 0; top_p counts among the top_k.
TEST(SampleToken, TopPLeavesTheFewestThatComeToIt) {
  const auto log2 = [](float x) { return x * std::log(2.0f); };
  const std::vector<float> logits{0, log2(2), -100, log2(3), log2(1)};
  const std::vector<bool> one{false, false, false, true, false},
      two{false, true, false, true, false}, three{false, true, false, true, true};
  expect_softmax(logits, {.top_p = 1e-9, .seed = 10}, one);
  expect_softmax(logits, {.top_p = 0.5, .seed = 11}, one);
  expect_softmax(logits, {.top_p = 0.6, .seed = 12}, two);
  expect_softmax(logits, {.top_p = 0.79, .seed = 13}, two);
  expect_softmax(logits, {.top_p = 0.81, .seed = 14}, three);
  expect_softmax(logits, {.top_k = 2, .top_p = 0.66, .seed = 15}, one);  // 8/12 and 4/12
  expect_softmax(logits, {.top_k = 2, .top_p = 0.67, .seed = 16}, two);
  expect_softmax({1, 1, 1, 1}, {.top_p = 0.5, .seed = 17}, {true, true, false, false});
}

TEST(SampleToken, SamplesHaveDrawsOfTheirOwn) {
  const std::vector<float> logits{1, 1};
  int equal = 0;
  for (int64_t position = 0; position < 400; ++position) {
    const int32_t token = sample_token(logits, {.sample = 5}, position);
    equal += token == sample_token(logits, {}, position);
    const RandomCounter draw{
        .seed = 0, .tensor = 5, .row = uint32_t(position), .step = 0, .stream = kSamplingStream};
    EXPECT_EQ(token, draw.word(0) < 0x80000000u ? 0 : 1);
  }
  EXPECT_NEAR(equal, 200, 5 * 10);  // of 400 coins, whose standard deviation is 10
}

TEST(SampleToken, LargeLogitsDoNotOverflow) {
  for (int64_t position = 0; position < 20; ++position)
    EXPECT_EQ(sample_token(std::vector<float>{-3e38f, 3e38f, 0}, {.temperature = 1e-3}, position),
              1);
}

TEST(SampleToken, WhatIsNotFiniteIsAnError) {
  EXPECT_ERROR(sample_token(std::vector<float>{0, NAN}, {}, 0), "token 1", "nan");
  EXPECT_ERROR(sample_token(std::vector<float>{INFINITY, 0}, {.temperature = 0}, 0), "token 0",
               "inf");
  for (const double temperature : {-1.0, double(NAN), double(INFINITY)})
    EXPECT_ERROR(sample_token(std::vector<float>{0}, {.temperature = temperature}, 0),
                 "temperature");
  EXPECT_ERROR(sample_token(std::vector<float>{0}, {.top_k = -1}, 0), "top_k is -1");
  for (const double top_p : {0.0, -1.0, 1.5, double(NAN)})
    EXPECT_ERROR(sample_token(std::vector<float>{0}, {.top_p = top_p}, 0), "top_p is");
  EXPECT_ERROR(sample_token(std::vector<float>{0}, {.sample = kMostSamples}, 0), "sample is 65536");
}

// --- text and generation -------------------------------------------------------------------------

class Generating : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<TempDirectory>();
    tokenizer_ =
        std::make_unique<Tokenizer>(Tokenizer::load(train_small_tokenizer(directory_->path())));
    // Twenty tokens more than the tokenizer has pieces.
    const LlamaConfig config = small_config(kSmallVocab + 20);
    write_model_checkpoint(
        *directory_ / "random",
        {.model = config, .tokenizer = tokenizer_->path(), .weights = random_weights(config)});
    write_model_checkpoint(*directory_ / "zero",
                           {.model = config, .tokenizer = tokenizer_->path()});
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    directory_.reset();
  }

  // Manifest of shards made with the small tokenizer that begin documents with BOS.
  static Manifest manifest_of_data() {
    Manifest manifest;
    manifest.tokenizer.file = "tokenizer.model";
    manifest.tokenizer.hash = tokenizer_->hash();
    manifest.tokenizer.vocab_size = kSmallVocab;
    manifest.options = {{"prepend_bos", true}};
    return manifest;
  }

  struct Decoding {
    LoadedModel model;
    LlamaDecoder decoder;
    Decoding(const std::string& path, int64_t positions)
        : model(load_model(posix_file_system(), path, kOneThread)),
          decoder(model.config.model, {.storage = model.storage(), .max_positions = positions},
                  *model.weights, *model.device, *model.allocator) {}
  };

  struct Result {
    Generation generation;
    std::string text;
    int pieces = 0;
  };
  static Result run(const std::string& name, const GenerateOptions& options,
                    int64_t positions = 16) {
    Decoding decoding(*directory_ / name, positions);
    Result result;
    result.generation =
        generate(decoding.decoder, *tokenizer_, options, [&](std::string_view piece) {
          EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
          result.text += piece;
          ++result.pieces;
          return true;
        });
    return result;
  }

  static std::unique_ptr<TempDirectory> directory_;
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<TempDirectory> Generating::directory_;
std::unique_ptr<Tokenizer> Generating::tokenizer_;

using TextStreaming = Generating;

TEST_F(TextStreaming, PiecesJoinToTheText) {
  for (const std::string text :
       {"the model", "  two  spaces ", "été 日本語 🙂 end", "\n\tx", "a"}) {
    const Tokens tokens = tokenizer_->encode(text);
    for (size_t prompt = 1; prompt <= tokens.size(); ++prompt) {
      const std::span<const int32_t> before = std::span(tokens).first(prompt);
      TextStream stream(*tokenizer_, before);
      std::string joined = tokenizer_->decode(before);
      const bool cut = joined.ends_with("\xEF\xBF\xBD");  // within a character, unlike any prompt
      for (size_t i = prompt; i < tokens.size(); ++i) joined += stream.add(tokens[i]);
      joined += stream.finish();
      if (!cut) {
        EXPECT_EQ(joined, text) << prompt;
      }
    }
  }
}

TEST_F(TextStreaming, CharactersComeWhole) {
  const Tokens tokens = tokenizer_->encode("a日🙂b");
  ASSERT_GE(tokens.size(), 1u + 3 + 4 + 1) << "spelled in bytes";
  TextStream stream(*tokenizer_, std::span(tokens).first(1));
  std::vector<std::string> pieces;
  for (size_t i = 1; i < tokens.size(); ++i)
    if (const std::string piece = stream.add(tokens[i]); !piece.empty()) pieces.push_back(piece);
  const size_t count = pieces.size();
  ASSERT_GE(count, 3u);
  EXPECT_EQ(pieces[count - 3], "日");
  EXPECT_EQ(pieces[count - 2], "🙂");
  EXPECT_EQ(pieces[count - 1], "b");
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(TextStreaming, AnythingAModelSaysIsShown) {
  const Tokens prompt = tokenizer_->encode("the");
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const RandomCounter draw{
        .seed = seed, .tensor = 0, .row = 0, .step = 0, .stream = kSyntheticStream};
    TextStream stream(*tokenizer_, prompt);
    Tokens all = prompt;
    std::string joined = tokenizer_->decode(prompt);
    for (uint32_t i = 0; i < 40; ++i) {
      all.push_back(int32_t(draw.word(i) % uint32_t(kSmallVocab)));
      const std::string piece = stream.add(all.back());
      EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
      joined += piece;
    }
    EXPECT_EQ(joined + stream.finish(), tokenizer_->decode(all)) << seed;
  }
}

TEST_F(Generating, GreedyTextIsThatOfTheWholeModel) {
  const Result result =
      run("random", {.prompt = "the model", .max_tokens = 6, .sampling = {.temperature = 0}});
  Decoding whole(*directory_ / "random", 16);
  Tokens tokens = tokenizer_->encode("the model");
  const int64_t prompt = std::ssize(tokens), vocab = whole.model.config.model.vocab_size;
  for (int i = 0; i < 6; ++i) {
    const BatchShape shape{1, std::ssize(tokens)};
    Llama llama(whole.model.config.model,
                {.micro_batch = shape,
                 .storage = DType::kF32,
                 .loss_chunk_rows = shape.seq_len,
                 .keep = Keep::kNothing},
                *whole.model.weights, *whole.model.device, *whole.model.allocator);
    const std::vector<float> logits = llama.logits(tokens);
    const auto last = logits.end() - vocab;
    tokens.push_back(int32_t(std::max_element(last, last + kSmallVocab) - last));
  }
  ASSERT_EQ(std::count(tokens.begin() + prompt, tokens.end(), int32_t(tokenizer_->eos_id())), 0);
  EXPECT_EQ(result.text, tokenizer_->decode(tokens));
  EXPECT_EQ(result.generation.prompt_tokens, prompt);
  EXPECT_EQ(result.generation.new_tokens, 6);
  EXPECT_EQ(result.generation.stopped, StopReason::kMaxTokens);
}

TEST_F(Generating, TheSeedDecidesTheText) {
  const auto text = [](uint64_t seed) {
    return run("random",
               {.prompt = "the", .max_tokens = 12, .sampling = {.temperature = 1.5, .seed = seed}})
        .text;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
  EXPECT_TRUE(text(1).starts_with("the"));
}

// All logits are equal there: EOS comes sooner or later, and tokens without a piece never.
TEST_F(Generating, StopsAtTheEndOfText) {
  int ended = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Result result =
        run("zero", {.prompt = "the", .max_tokens = 1000, .sampling = {.seed = seed}}, 64);
    const Generation& g = result.generation;
    ended += g.stopped == StopReason::kEndOfText;
    EXPECT_LE(g.prompt_tokens + g.new_tokens, 65) << seed;
    EXPECT_TRUE(g.stopped == StopReason::kEndOfText || g.prompt_tokens + g.new_tokens == 65)
        << seed;
  }
  EXPECT_GT(ended, 0);
  EXPECT_LT(ended, 40);
}

// An imported model may end its texts with tokens other than its tokenizer's.
TEST_F(Generating, StopsAtOtherEnds) {
  GenerateOptions options{.prompt = "the", .max_tokens = 9, .sampling = {.temperature = 0}};
  const Generation whole = run("random", options).generation;
  ASSERT_EQ(whole.stopped, StopReason::kMaxTokens);
  for (int64_t id = 0; id < tokenizer_->vocab_size(); ++id) options.ends.push_back(id);
  const Generation ended = run("random", options).generation;
  EXPECT_EQ(ended.stopped, StopReason::kEndOfText);
  EXPECT_EQ(ended.new_tokens, 1);
}

// n tokens of prompt leave positions - n tokens to continue from, and the last needs none.
TEST_F(Generating, StopsWhenTheContextIsFull) {
  const int64_t prompt = std::ssize(tokenizer_->encode("the model"));
  const auto stopped_after = [&](int64_t positions, int64_t max_tokens) {
    const Result result = run(
        "random", {.prompt = "the model", .max_tokens = max_tokens, .sampling = {.temperature = 0}},
        positions);
    return std::pair(result.generation.new_tokens, result.generation.stopped);
  };
  EXPECT_EQ(stopped_after(prompt + 3, 100), std::pair(int64_t{4}, StopReason::kContextFull));
  EXPECT_EQ(stopped_after(prompt + 3, 4), std::pair(int64_t{4}, StopReason::kMaxTokens));
  EXPECT_EQ(stopped_after(prompt, 100), std::pair(int64_t{1}, StopReason::kContextFull));
}

TEST_F(Generating, StopsWhenTheReaderHasGone) {
  Decoding decoding(*directory_ / "random", 16);
  for (const int pieces : {0, 1, 3}) {
    int taken = 0;
    const Generation g =
        generate(decoding.decoder, *tokenizer_, {.prompt = "the", .sampling = {.temperature = 0}},
                 [&](std::string_view) { return taken++ < pieces; });
    EXPECT_EQ(g.stopped, StopReason::kReaderGone);
    EXPECT_EQ(g.new_tokens, pieces);
    EXPECT_EQ(taken, pieces + 1);
  }
}

TEST_F(Generating, BosComesBeforeThePrompt) {
  const GenerateOptions options{.prompt = "the", .max_tokens = 5, .sampling = {.temperature = 0}};
  GenerateOptions with_bos = options;
  with_bos.prepend_bos = true;
  const Result without = run("random", options), with = run("random", with_bos);
  EXPECT_EQ(with.generation.prompt_tokens, without.generation.prompt_tokens + 1);
  EXPECT_TRUE(with.text.starts_with("the"));
  EXPECT_NE(with.text, without.text);
}

// The prompt is read once; each sample is the same as by itself.
TEST_F(Generating, SamplesOfOnePromptAreThoseOfEachAlone) {
  GenerateOptions options{
      .prompt = "the model", .max_tokens = 6, .sampling = {.temperature = 2, .seed = 3}};
  Decoding decoding(*directory_ / "random", 16);
  Continuations continuations(decoding.decoder, *tokenizer_, options);
  std::vector<std::string> texts;
  for (int64_t sample = 0; sample < 3; ++sample) {
    options.sampling.sample = sample;
    std::string text = options.prompt;
    (void)continuations.next([&](std::string_view piece) {
      text += piece;
      return true;
    });
    EXPECT_EQ(text, run("random", options).text) << sample;
    texts.push_back(text);
  }
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_NE(texts[1], texts[2]);
}

// Starts a new text, after the token that precedes a document.
TEST_F(Generating, AnEmptyPromptIsTheBeginningOfAText) {
  GenerateOptions options{.prompt = "", .max_tokens = 4, .sampling = {.temperature = 0}};
  EXPECT_EQ(prompt_tokens(*tokenizer_, options, 16), Tokens{int32_t(tokenizer_->eos_id())});
  Decoding decoding(*directory_ / "random", 16);
  const std::vector<float> logits = decoding.decoder.next_logits(int32_t(tokenizer_->eos_id()));
  const Tokens first{
      int32_t(std::max_element(logits.begin(), logits.begin() + kSmallVocab) - logits.begin())};
  const Result result = run("random", options);
  EXPECT_EQ(result.generation.prompt_tokens, 1);
  EXPECT_TRUE(result.text.starts_with(tokenizer_->decode(first))) << result.text;
  options.prepend_bos = true;
  EXPECT_EQ(prompt_tokens(*tokenizer_, options, 16), Tokens{int32_t(tokenizer_->bos_id())});
}

TEST_F(Generating, WrongOptionsAreErrors) {
  EXPECT_ERROR(run("zero", {.prompt = "ab\xff"}), "not valid UTF-8", "byte 2");
  EXPECT_ERROR(run("zero", {.prompt = std::string(400, 'x')}), "the prompt has", "at most 16");
  EXPECT_ERROR(run("zero", {.prompt = "a", .max_tokens = 0}), "max_tokens is 0");
  EXPECT_ERROR(run("zero", {.prompt = "a", .sampling = {.temperature = NAN}}),
               "temperature is nan");
  EXPECT_ERROR(run("zero", {.prompt = "a", .sampling = {.temperature = -1}}), "temperature is -1");
  EXPECT_ERROR(run("zero", {.prompt = "a", .sampling = {.top_k = -2}}), "top_k is -2");
}

// --- a model's tokenizer -------------------------------------------------------------------------

TEST_F(Generating, TokenizerIsTheGivenOneOrTheConfigs) {
  RunConfig config =
      CheckpointedModel{.model = small_config(kSmallVocab), .tokenizer = tokenizer_->path()}
          .config();
  EXPECT_EQ(find_tokenizer(config, "").path, tokenizer_->path());
  EXPECT_EQ(find_tokenizer(config, "other.model").path, "other.model");
  EXPECT_EQ(load_tokenizer(config, find_tokenizer(config, "")).vocab_size(), kSmallVocab);
  config.data.tokenizer = *directory_ / "gone.model";
  EXPECT_ERROR(load_tokenizer(config, find_tokenizer(config, "")), "gone.model", "--tokenizer");
  config.data.tokenizer = "";
  EXPECT_ERROR(load_tokenizer(config, find_tokenizer(config, "")), "not set", "--tokenizer");
  EXPECT_ERROR(load_tokenizer(config, find_tokenizer(config, "other.model")),
               "other.model: no such file");
}

TEST_F(Generating, TokenizerWithTooManyPiecesIsRefused) {
  const RunConfig config =
      CheckpointedModel{.model = small_config(kSmallVocab - 1), .tokenizer = tokenizer_->path()}
          .config();
  EXPECT_ERROR(load_tokenizer(config, find_tokenizer(config, "")), "has 300 pieces",
               "the model has 299");
}

TEST_F(Generating, TokenizerIsFoundBesideTheData) {
  const TempDirectory data;
  write_file_atomically(posix_file_system(), data / "tokenizer.model",
                        bytes_of(tokenizer_->model_bytes()));
  manifest_of_data().save(data / "manifest.json");
  RunConfig config = CheckpointedModel{.model = small_config(kSmallVocab)}.config();
  config.data.train = {CorpusConfig::of_texts({data / "train_*.bin"})};
  const TokenizerFile found = find_tokenizer(config, "");
  EXPECT_EQ(found.path, data / "tokenizer.model");
  EXPECT_TRUE(found.prepend_bos);
  EXPECT_EQ(load_tokenizer(config, found).hash(), tokenizer_->hash());
}

TEST_F(Generating, WhatTheRunKeepsCountsBeforeItsConfig) {
  const TempDirectory run;
  const std::string checkpoint = run / "checkpoints/step_00000007";
  write_model_checkpoint(checkpoint, {.model = small_config(kSmallVocab)});
  write_file_atomically(posix_file_system(), run / "tokenizer.model",
                        bytes_of(tokenizer_->model_bytes()));
  manifest_of_data().save(run / "data_manifest.json");
  const RunConfig config =
      CheckpointedModel{.model = small_config(kSmallVocab), .tokenizer = tokenizer_->path()}
          .config();
  const SavedWeights saved{.checkpoint = checkpoint, .config = config, .hash = "", .source = {}};
  const TokenizerFile found = find_tokenizer(saved, "");
  EXPECT_EQ(std::filesystem::canonical(found.path),
            std::filesystem::canonical(run / "tokenizer.model"));
  EXPECT_TRUE(found.prepend_bos);
  EXPECT_EQ(find_tokenizer(saved, "other.model").path, "other.model");
  EXPECT_FALSE(find_tokenizer(config, "").prepend_bos);
}

// --- checkpoints ---------------------------------------------------------------------------------

TEST(FindCheckpoint, TakesRunsAndTheirPartsAndSaysWhatItWants) {
  const TempDirectory directory;
  FileSystem& fs = posix_file_system();
  const std::string run = directory / "run", inner = run + "/checkpoints",
                    newest = inner + "/step_00000007";
  EXPECT_ERROR(find_checkpoint(fs, run), "run: no such");
  fs.create_directories(inner);
  EXPECT_ERROR(find_checkpoint(fs, run), "neither a checkpoint", "state.json");
  write_model_checkpoint(inner + "/step_00000005", {.model = small_config(30), .step = 5});
  write_model_checkpoint(newest, {.model = small_config(30), .step = 7});
  for (const std::string& path : {run, run + "/", inner, newest})
    EXPECT_EQ(find_checkpoint(fs, path), newest) << path;
  EXPECT_EQ(find_checkpoint(fs, inner + "/step_00000005"), inner + "/step_00000005");
  EXPECT_ERROR(find_checkpoint(fs, newest + "/state.json"), "not a directory");
}

TEST(FindCheckpoint, PassesOverDamagedOnes) {
  const TempDirectory directory;
  FileSystem& fs = posix_file_system();
  const std::string inner = directory / "checkpoints", older = inner + "/step_00000005",
                    newest = inner + "/step_00000007";
  write_model_checkpoint(older, {.model = small_config(30), .step = 5});
  write_model_checkpoint(newest, {.model = small_config(30), .step = 7});
  fs.truncate(newest + "/rank_00000_of_00001.safetensors", 100);
  EXPECT_EQ(find_checkpoint(fs, directory.path()), older);
  EXPECT_ERROR(load_model(fs, newest, kOneThread), "rank_00000_of_00001.safetensors", "100 bytes");
  fs.truncate(older + "/rank_00000_of_00001.safetensors", 100);
  EXPECT_ERROR(find_checkpoint(fs, directory.path()), "all of its 2 checkpoints are corrupt");
}

}  // namespace
}  // namespace mpt::test
