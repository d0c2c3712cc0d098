// tokenizer.json and tiktoken files against tests/golden/subword, whose ids are from the libraries
// of these files (make_subword_golden.py), and the tokenizer.json written by exports.
#include <algorithm>
#include <array>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "data/data_files.h"
#include "text/corpus/text_encoder.h"
#include "text/corpus/word_cache.h"
#include "text/subword/subword_tokenizer.h"
#include "text/text_bytes.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files/tokenizer_json_reader.h"

namespace mpt {
namespace {

using nlohmann::json;

constexpr std::array kFiles{"gpt2.json",
                            "llama3.json",
                            "qwen2.json",
                            "unigram.json",
                            "unigram_bytes.json",
                            "characters.json",
                            "characters_unfused.json",
                            "cl100k_base.tiktoken",
                            "o200k_base.tiktoken"};

std::string subword_golden(const std::string& name) {
  return MPT_SOURCE_DIR "/tests/golden/subword/" + name;
}

json cases_of(std::string file) {
  if (file.ends_with(".json")) file.resize(file.size() - 5);
  return json::parse(test::read_text(subword_golden(file + ".cases.json")));
}

class SubwordGolden : public testing::TestWithParam<const char*> {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::load(subword_golden(GetParam()));
  const json cases_ = cases_of(GetParam());
};

TEST_P(SubwordGolden, TextsBecomeTheLibrarysIds) {
  ASSERT_GT(cases_.size(), 30u);
  for (const json& c : cases_)
    EXPECT_EQ(json(tokenizer_.encode(c.at("text").get<std::string>())), c.at("ids"))
        << c.at("text");
}

TEST_P(SubwordGolden, IdsBecomeTheLibrarysText) {
  for (const json& c : cases_)
    EXPECT_EQ(tokenizer_.decode(c.at("ids").get<std::vector<int32_t>>()), c.at("decoded"));
}

// For texts that the tokenizer preserves, after the token that ends the previous one.
TEST_P(SubwordGolden, BytesOfTheTextAreCounted) {
  const TextBytes text = TextBytes::of(tokenizer_);
  const auto end = int32_t(std::max(tokenizer_.eos_id(), tokenizer_.bos_id()));
  int64_t counted = 0;
  for (const json& c : cases_) {
    if (end < 0 || c.at("text") != c.at("decoded")) continue;
    auto ids = c.at("ids").get<std::vector<int32_t>>();
    ids.insert(ids.begin(), end);
    const std::span all(ids);
    const auto bytes = text.of_targets(all.first(ids.size() - 1), all.subspan(1));
    if (!bytes) continue;
    EXPECT_EQ(*bytes, std::ssize(c.at("text").get<std::string>())) << c.at("text");
    ++counted;
  }
  const bool leaves_out = std::string(GetParam()).starts_with("characters");
  EXPECT_TRUE(leaves_out ? counted == 0 : counted > 3) << counted;
}

TEST_P(SubwordGolden, EncodersWithACacheGiveTheSameIds) {
  for (const size_t cached : {size_t{0}, size_t{3}, size_t{100'000}}) {
    WordCache words(cached);
    TextEncoder encoder(tokenizer_, words);
    for (int round = 0; round < 2; ++round)
      for (const json& c : cases_) {
        std::vector<int32_t> ids{-7};
        encoder.append(c.at("text").get<std::string>(), ids);
        ids.erase(ids.begin());
        EXPECT_EQ(json(ids), c.at("ids")) << c.at("text");
      }
  }
}

TEST_P(SubwordGolden, SpecialTokensCanBeText) {
  WordCache words;
  TextEncoder encoder(tokenizer_, words, SpecialTokens::kText);
  for (const json& c : cases_) {
    std::vector<int32_t> ids;
    encoder.append(c.at("text").get<std::string>(), ids);
    EXPECT_EQ(json(ids), c.value("ids_of_text", c.at("ids"))) << c.at("text");
  }
}

std::string name_of_case(const testing::TestParamInfo<const char*>& file) {
  std::string name = file.param;
  std::ranges::replace(name, '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, SubwordGolden, testing::ValuesIn(kFiles), name_of_case);

// --- contents of the files other than ids --------------------------------------------------------

TEST(SubwordFiles, AreKnownByTheirContent) {
  const Tokenizer json_file = Tokenizer::load(subword_golden("llama3.json"));
  EXPECT_EQ(json_file.kind(), TokenizerKind::kTokenizerJson);
  EXPECT_STREQ(json_file.file_name(), "tokenizer.json");
  EXPECT_EQ(json_file.model_bytes(), test::read_text(subword_golden("llama3.json")));
  const Tokenizer ranks = Tokenizer::load(subword_golden("cl100k_base.tiktoken"));
  EXPECT_EQ(ranks.kind(), TokenizerKind::kTiktoken);
  EXPECT_STREQ(ranks.file_name(), "tokenizer.tiktoken");
  const std::string renamed = test::fresh_directory() + "/tokenizer.model";
  EXPECT_EQ(Tokenizer::load(test::write_text(renamed, json_file.model_bytes())).kind(),
            TokenizerKind::kTokenizerJson);
}

TEST(SubwordFiles, SayWhichTokensBeginAndEndTexts) {
  const auto named = [](const Tokenizer& tokenizer, int64_t id) {
    return id < 0 ? "" : tokenizer.id_to_piece(id);
  };
  const Tokenizer llama3 = Tokenizer::load(subword_golden("llama3.json"));
  EXPECT_EQ(named(llama3, llama3.bos_id()), "<|begin_of_text|>");  // from its post_processor
  EXPECT_EQ(named(llama3, llama3.eos_id()), "<|end_of_text|>");    // by its name
  EXPECT_TRUE(llama3.subwords()->parts().template_begins_with_bos);
  const Tokenizer gpt2 = Tokenizer::load(subword_golden("gpt2.json"));
  EXPECT_EQ(gpt2.bos_id(), -1);
  EXPECT_EQ(named(gpt2, gpt2.eos_id()), "<|endoftext|>");
  EXPECT_FALSE(gpt2.subwords()->parts().template_begins_with_bos);
  const Tokenizer unigram = Tokenizer::load(subword_golden("unigram.json"));
  EXPECT_EQ(unigram.bos_id(), 1);
  EXPECT_EQ(unigram.eos_id(), 2);
  EXPECT_EQ(unigram.unk_id(), 0);
  const Tokenizer ranks = Tokenizer::load(subword_golden("cl100k_base.tiktoken"));
  EXPECT_EQ(named(ranks, ranks.eos_id()), "<|endoftext|>");
  EXPECT_EQ(ranks.eos_id(), ranks.vocab_size() - 1);
  EXPECT_EQ(named(ranks, ranks.eos_id() - 1), "");  // no piece has this id
}

// The copy of a tiktoken file contains its settings.
TEST(SubwordFiles, CopiesOfTiktokenFilesStandAlone) {
  const Tokenizer ranks = Tokenizer::load(subword_golden("cl100k_base.tiktoken"));
  const std::string copy =
      test::write_text(test::fresh_directory() + "/tokenizer.tiktoken", ranks.model_bytes());
  const Tokenizer copied = Tokenizer::load(copy);
  EXPECT_EQ(copied.hash(), ranks.hash());
  EXPECT_EQ(copied.encode("Some text, 12345"), ranks.encode("Some text, 12345"));
  const std::string alone = test::fresh_directory() + "/x.tiktoken";
  test::write_text(alone, test::read_text(subword_golden("cl100k_base.tiktoken")));
  test::expect_error([&] { Tokenizer::load(alone); }, {alone, ".tiktoken.json", "pattern"});
}

// tests/golden/tokenizers: exports of SentencePiece models, with the ids of SentencePiece.
TEST(SubwordFiles, ExportedSentencePieceModelsAreReadAgain) {
  for (const char* name : {"bpe", "bpe_unknown", "bpe_squeezed", "bpe_bare"}) {
    const json file = json::parse(
        test::read_text(std::string(MPT_SOURCE_DIR "/tests/golden/tokenizers/") + name + ".json"));
    const SubwordTokenizer tokenizer = read_tokenizer_json(file.at("tokenizer").dump());
    for (const json& c : file.at("cases"))
      EXPECT_EQ(json(tokenizer.encode(c.at("text").get<std::string>())), c.at("ids"))
          << name << " " << c.at("text");
  }
}

TEST(SubwordFiles, TextMustBeUtf8) {
  const Tokenizer tokenizer = Tokenizer::load(subword_golden("gpt2.json"));
  test::expect_error([&] { (void)tokenizer.encode("a\xC3"); }, {"gpt2.json", "byte 1", "UTF-8"});
}

}  // namespace
}  // namespace mpt
