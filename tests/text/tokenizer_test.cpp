// The tokenizer: training on a bounded sample, determinism, round trips, bad models and impossible
// vocabularies.
#include "text/tokenizer.h"

#include <numeric>

#include "core/io/hash.h"
#include "data/data_files.h"
#include "text/line_sample.h"
#include "text/tokenizer_training.h"

namespace mpt {
namespace {

using test::expect_error;
using test::fresh_directory;
using test::generated_text;
using test::write_text;

TEST(Tokenizer, HasLlamasControlPieces) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  EXPECT_EQ(tokenizer.vocab_size(), 320);
  EXPECT_EQ(tokenizer.unk_id(), 0);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), -1);
  EXPECT_EQ(tokenizer.id_to_piece(2), "</s>");
  EXPECT_EQ(tokenizer.id_to_piece(3), "<0x00>");
  EXPECT_EQ(tokenizer.hash(), hash_file(test::small_tokenizer()));
  EXPECT_EQ(tokenizer.model_bytes(), test::read_text(test::small_tokenizer()));
}

TEST(Tokenizer, DecodeUndoesEncode) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const std::string every_byte = [] {
    std::string text;
    for (char c = 1; c < 127; ++c) text += c;
    return text;
  }();
  for (const std::string& text :
       {std::string("kalomi terane"), generated_text(9, 500), std::string("  two  spaces "),
        std::string("line\nline\r\n\ttab"), std::string("Café 漢字 😀 12345"), every_byte,
        std::string("nul\0inside", 10), std::string("x"), std::string()}) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < tokenizer.vocab_size());
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Tokenizer, LearnsThePiecesOfItsText) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const std::string text = generated_text(5, 1000);
  EXPECT_LT(std::ssize(tokenizer.encode(text)) * 2, std::ssize(text));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreErrors) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  for (const int32_t id : {-1, 320, INT32_MAX, INT32_MIN}) {
    expect_error(
        [&] {
          (void)tokenizer.decode(std::vector<int32_t>{5, id});
        },
        {fmt::format("id {} ", id), "0 to 319"});
    expect_error([&] { (void)tokenizer.id_to_piece(id); }, {fmt::format("id {} ", id)});
  }
}

TEST(Tokenizer, BadModelsAreErrors) {
  const std::string directory = fresh_directory(), path = directory + "/bad.model";
  expect_error([&] { Tokenizer::load(directory + "/none.model"); }, {"none.model", "no such file"});
  expect_error([&] { Tokenizer::load(directory); }, {directory, "directory"});
  const std::string good = test::read_text(test::small_tokenizer());
  for (const std::string& content :
       {std::string(), std::string("garbage"), std::string(5000, '\xff'), std::string(5000, '\0'),
        good.substr(0, 10), good.substr(0, good.size() / 2), good.substr(0, good.size() - 1),
        std::string("\x01{\"model\": {\"type\": \"BPE\"}}")}) {
    write_text(path, content);
    expect_error([&] { Tokenizer::load(path); }, {path, "not a SentencePiece model"});
  }
}

struct Trained {
  TokenizerTrainingResult result;
  std::string bytes;
};

Trained train_on(const std::string& text, TokenizerTrainingOptions options) {
  const std::string directory = fresh_directory();
  options.corpus.patterns = {write_text(directory + "/text.txt", text)};
  options.output = directory + "/out.model";
  const TokenizerTrainingResult result = train_tokenizer(options);
  EXPECT_EQ(result.path, options.output);
  return {result, test::read_text(result.path)};
}

TEST(TokenizerTraining, TwoRunsGiveTheSameBytes) {
  const std::string text = generated_text(2, 6000);
  const Trained one = train_on(text, {.vocab_size = 300});
  EXPECT_TRUE(one.bytes == train_on(text, {.vocab_size = 300}).bytes);
  EXPECT_EQ(one.result.hash, hash_file(one.result.path));
  EXPECT_EQ(one.result.vocab_size, 300);
}

TEST(TokenizerTraining, SamplesWithinTheBudget) {
  const std::string text = generated_text(2, 20000);
  const Trained sampled = train_on(text, {.vocab_size = 290, .sample_bytes = 20'000, .seed = 1});
  EXPECT_LE(sampled.result.sample_bytes, 20'000);
  EXPECT_GT(sampled.result.sample_bytes, 19'000);
  EXPECT_GT(sampled.result.text_bytes, 100'000);
  EXPECT_TRUE(sampled.bytes ==
              train_on(text, {.vocab_size = 290, .sample_bytes = 20'000, .seed = 1}).bytes);
  EXPECT_FALSE(sampled.bytes ==
               train_on(text, {.vocab_size = 290, .sample_bytes = 20'000, .seed = 2}).bytes);
}

TEST(TokenizerTraining, ImpossibleVocabulariesAreExplained) {
  const std::string text = generated_text(3, 300);
  for (const int64_t size : {int64_t{-5}, int64_t{0}, int64_t{10}, int64_t{259}, int64_t{1} << 40})
    expect_error([&] { train_on(text, {.vocab_size = size}); },
                 {fmt::format("vocab_size is {};", size), "260"});
  expect_error([&] { train_on(text, {.vocab_size = 262}); },
               {"vocab_size is 262", "characters alone need"});
  expect_error([&] { train_on(text, {.vocab_size = 100'000}); },
               {"vocab_size is 100000", "at most"});
}

TEST(TokenizerTraining, StrangeTextsEndInAResultOrAnError) {
  std::string all_characters;
  for (int i = 0; i < 3000; ++i)
    all_characters += fmt::format("{}{} ", char(0xC4 + i % 20), char(0x80 + i % 64));
  const std::string reserved = "\xE2\x96\x85 is reserved\n";
  for (const std::string& text :
       {std::string("a"), std::string("a a a a"), std::string(100'000, 'x'), reserved,
        std::string("nul\0byte", 8), std::string("\xE2\x96\x81\n"), all_characters,
        std::string(70'000, 'q') + " z"}) {
    try {
      train_on(text, {.vocab_size = 261});
    } catch (const Error& failure) {
      EXPECT_GT(std::string(failure.what()).size(), 20u);
    }
  }
  expect_error([&] { train_on("\n\n \n", {.vocab_size = 300}); }, {"no text"});
  expect_error([&] { train_on(reserved, {.vocab_size = 300}); }, {"no text"});
}

TEST(TokenizerTraining, BadOptionsAreErrorsAndLeaveNoFile) {
  const std::string directory = fresh_directory();
  const std::string text = write_text(directory + "/text.txt", generated_text(3, 2000));
  TokenizerTrainingOptions good{
      .corpus = {.patterns = {text}}, .output = directory + "/new", .vocab_size = 300};
  TokenizerTrainingOptions options = good;
  options.character_coverage = 0.5;
  expect_error([&] { train_tokenizer(options); }, {"character_coverage is 0.5"});
  options = good;
  options.sample_bytes = 0;
  expect_error([&] { train_tokenizer(options); }, {"sample_bytes is 0"});
  options = good;
  options.output = "";
  expect_error([&] { train_tokenizer(options); }, {"no output"});
  options = good;
  options.output = text + "/new";
  expect_error([&] { train_tokenizer(options); }, {"text.txt: exists and is not a directory"});
  options = good;
  options.vocab_size = 100'000;
  expect_error([&] { train_tokenizer(options); }, {"at most"});
  EXPECT_FALSE(std::filesystem::exists(directory + "/new.model"));
  EXPECT_EQ(train_tokenizer(good).path, directory + "/new.model");
  expect_error([&] { train_tokenizer(good); }, {"new.model: already exists", "--overwrite"});
}

TEST(LineSample, IsUniformDeterministicAndWithinItsBudget) {
  std::vector<int> kept(100);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    LineSample sample(seed, 100);
    for (int i = 0; i < 100; ++i) sample.add(fmt::format("{:05}", i));
    EXPECT_EQ(sample.bytes(), 100);
    std::vector<std::string> lines = sample.take();
    EXPECT_EQ(lines.size(), 20u);
    EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end()));
    for (const std::string& line : lines) ++kept[static_cast<size_t>(std::stoi(line))];
  }
  // Each line is kept by a fifth of the 400 seeds: 80, standard deviation 8.
  for (const int count : kept) EXPECT_NEAR(count, 80, 5 * 8);
}

TEST(LineSample, KeepsEverythingThatFitsAndOneLineAtLeast) {
  LineSample all(3, 1000);
  for (const char* line : {"b", "a", "c"}) all.add(line);
  EXPECT_EQ(all.take(), (std::vector<std::string>{"b", "a", "c"}));
  LineSample tight(3, 1);
  tight.add("longer than the budget");
  EXPECT_EQ(tight.take().size(), 1u);
}

// A line takes 48 bytes in addition to its text.
TEST(LineSample, ManyShortLinesDoNotFillTheMemory) {
  LineSample sample(3, 10'000'000);
  for (int i = 0; i < 1'100'000; ++i) sample.add("x");
  EXPECT_EQ(sample.take().size(), size_t{1} << 20);
}

}  // namespace
}  // namespace mpt
