// The word-by-word encoder against SentencePiece itself: same ids for any text, any cache, any kind
// of model.
#include "text/corpus/text_encoder.h"

#include <random>

#include <sentencepiece_trainer.h>

#include "data/data_files.h"
#include "text/corpus/word_cache.h"

namespace mpt {
namespace {

// Returns a few hundred strings made of error-prone pieces, in all combinations of neighbors.
std::vector<std::string> awkward_texts() {
  const std::vector<std::string> parts{" ",
                                       " ",
                                       "  ",
                                       "\n",
                                       "\t",
                                       "a",
                                       "kalo",
                                       "mi",
                                       "ter",
                                       ".",
                                       "7",
                                       "42",
                                       "é",
                                       "漢字",
                                       "😀",
                                       "\xE2\x96\x81",
                                       "\xE2\x96\x82",
                                       "\xE2",
                                       "\xFF",
                                       std::string(1, '\0'),
                                       "\r\n",
                                       "<s>",
                                       "</s>"};
  std::mt19937 random(11);
  std::vector<std::string> texts{"",
                                 " ",
                                 "  ",
                                 "a",
                                 " a",
                                 "a ",
                                 "a  ",
                                 "  a  b  ",
                                 "\xE2\x96\x81",
                                 "a\xE2\x96\x81",
                                 "a \xE2\x96\x81"};
  for (int i = 0; i < 600; ++i) {
    std::string text;
    for (uint32_t n = random() % 30; n > 0; --n) text += parts[random() % parts.size()];
    texts.push_back(text);
  }
  texts.push_back(test::generated_text(4, 2000));
  texts.push_back(std::string(5000, 'k').append(300, ' ').append("end"));
  return texts;
}

void expect_same_ids(const Tokenizer& tokenizer, TextEncoder& encoder) {
  for (const std::string& text : awkward_texts()) {
    std::vector<int32_t> ids{-7};
    encoder.append(text, ids);
    std::vector<int32_t> expected = tokenizer.encode(text);
    expected.insert(expected.begin(), -7);
    ASSERT_EQ(ids, expected) << "'" << text << "'";
  }
}

Tokenizer trained_with(std::unordered_map<std::string, std::string> arguments) {
  const std::string directory = test::fresh_directory();
  arguments["input"] = test::write_text(directory + "/text.txt", test::generated_text(1, 4000));
  arguments["model_prefix"] = directory + "/m";
  arguments.emplace("minloglevel", "2");
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(arguments).ok());
  return Tokenizer::load(directory + "/m.model");
}

TEST(TextEncoder, GivesTheIdsOfSentencePiece) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  for (const size_t cached : {size_t{0}, size_t{1}, size_t{7}, size_t{100'000}}) {
    WordCache words(cached);
    TextEncoder encoder(tokenizer, words);
    EXPECT_TRUE(encoder.word_by_word());
    expect_same_ids(tokenizer, encoder);
    expect_same_ids(tokenizer, encoder);  // now from the cache
  }
}

TEST(TextEncoder, ModelsOfOtherKindsAreEncodedWhole) {
  using Arguments = std::unordered_map<std::string, std::string>;
  const Arguments plain{{"model_type", "bpe"},
                        {"vocab_size", "330"},
                        {"byte_fallback", "true"},
                        {"normalization_rule_name", "identity"},
                        {"remove_extra_whitespaces", "false"},
                        {"hard_vocab_limit", "false"}};
  const auto with = [&](const Arguments& changes) {
    Arguments arguments = plain;
    for (const auto& [key, value] : changes) arguments[key] = value;
    return arguments;
  };
  EXPECT_TRUE(words_are_independent(trained_with(plain).model_bytes()));
  for (const Arguments& changes :
       {Arguments{{"model_type", "unigram"}},
        Arguments{{"byte_fallback", "false"}, {"vocab_size", "60"}},
        Arguments{{"normalization_rule_name", "nmt_nfkc"}},
        Arguments{{"remove_extra_whitespaces", "true"}},
        Arguments{{"split_by_whitespace", "false"}}, Arguments{{"user_defined_symbols", "ka lo"}},
        Arguments{{"add_dummy_prefix", "false"}},
        Arguments{{"treat_whitespace_as_suffix", "true"}}}) {
    SCOPED_TRACE(changes.begin()->first);
    const Tokenizer tokenizer = trained_with(with(changes));
    WordCache words;
    TextEncoder encoder(tokenizer, words);
    EXPECT_FALSE(encoder.word_by_word());
    expect_same_ids(tokenizer, encoder);
  }
}

TEST(TextEncoder, BytesThatAreNoModelAreNotSplit) {
  const std::string model = test::read_text(test::small_tokenizer());
  EXPECT_FALSE(words_are_independent(""));
  EXPECT_FALSE(words_are_independent(std::string(100, '\xff')));
  for (size_t size = 0; size < model.size() - 20; size += 7)
    EXPECT_FALSE(words_are_independent(model.substr(0, size)));
}

}  // namespace
}  // namespace mpt
