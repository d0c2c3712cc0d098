// tokenizer.json of small models against tests/golden/tokenizers, where the tokenizers library gave
// the ids of SentencePiece (make_tokenizer_golden.py).
#include <nlohmann/json.hpp>

#include "data/data_files.h"
#include "text/sentencepiece/to_tokenizer_json.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

using nlohmann::json;

constexpr std::array kModels{"bpe", "bpe_unknown", "bpe_squeezed", "bpe_bare"};

std::string golden_path(const std::string& name) {
  return MPT_SOURCE_DIR "/tests/golden/tokenizers/" + name;
}
SentencePieceModel golden_model(const std::string& name) {
  return parse_sentencepiece_model(test::read_text(golden_path(name + ".model")));
}
json golden_json(const std::string& name) {
  return json::parse(test::read_text(golden_path(name + ".json")));
}

// The library's spelling: merges as pairs, and an option at its default.
json as_the_library_writes(json content) {
  for (json& merge : content.at("model").at("merges")) {
    const std::string text = merge;
    const size_t space = text.find(' ');
    merge = {text.substr(0, space), text.substr(space + 1)};
  }
  content.at("model")["ignore_merges"] = false;
  return content;
}

TEST(TokenizerJson, IsWhatGaveSentencePiecesIds) {
  for (const char* name : kModels) {
    const SentencePieceModel model = golden_model(name);
    ASSERT_EQ(not_in_tokenizer_json(model), "") << name;
    EXPECT_EQ(as_the_library_writes(tokenizer_json(model, -1)), golden_json(name).at("tokenizer"))
        << name;
  }
}

TEST(TokenizerJson, ThoseIdsAreOurs) {
  for (const char* name : kModels) {
    const Tokenizer tokenizer = Tokenizer::load(golden_path(std::string(name) + ".model"));
    for (const json& c : golden_json(name).at("cases"))
      EXPECT_EQ(json(tokenizer.encode(c.at("text").get<std::string>())), c.at("ids"))
          << name << " " << c.at("text");
  }
}

TEST(TokenizerJson, TextsBeginWithBosIfAsked) {
  const json content = tokenizer_json(golden_model("bpe"), 1);
  const json begin{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  EXPECT_EQ(content.at("post_processor").at("single"), json::array({begin, text}));
  EXPECT_EQ(content.at("post_processor").at("special_tokens").at("<s>").at("ids"),
            json::array({1}));
}

SentencePieceModel bpe_of(const std::vector<std::string>& texts) {
  SentencePieceModel model{.model = PieceModel::kBpe};
  model.pieces.push_back({"<unk>", 0, PieceType::kUnknown});
  for (const std::string& text : texts)
    model.pieces.push_back({text, -float(model.pieces.size()), PieceType::kNormal});
  return model;
}

// In "ababa" SentencePiece joins the left "ab a", in "aabaa" the left "a aba".
TEST(TokenizerJson, OverlappingMergesRankFromTheLeft) {
  using Merges = std::vector<std::string>;
  EXPECT_EQ(bpe_merges(bpe_of({"ab", "ba", "aba", "a", "b"})),
            (Merges{"a b", "b a", "ab a", "a ba"}));
  EXPECT_EQ(bpe_merges(bpe_of({"ab", "aba", "ababa", "a", "b"})),
            (Merges{"a b", "ab a", "ab aba"}));
  EXPECT_EQ(bpe_merges(bpe_of({"ab", "ba", "aba", "bab", "abab", "a", "b"})),
            (Merges{"a b", "b a", "ab a", "a ba", "ba b", "b ab", "a bab", "ab ab", "aba b"}));
}

// "aa" has one merge, "aaa" two: those of all up to n letters have n^3 / 3 bytes.
TEST(TokenizerJson, MergesHaveALimit) {
  std::vector<std::string> pieces;
  for (size_t length = 1; length <= 1000; ++length) pieces.emplace_back(length, 'a');
  test::expect_error([&] { (void)bpe_merges(bpe_of(pieces)); },
                     {"merges", "more than 67108864 bytes"});
}

// Control and byte pieces never take part in merges, whatever they spell.
TEST(TokenizerJson, OnlyNormalPiecesMerge) {
  SentencePieceModel model = bpe_of({"<s", ">", "<", "s"});
  model.pieces.push_back({"<s>", 0, PieceType::kControl});
  EXPECT_EQ(bpe_merges(model), std::vector<std::string>{"< s"});
}

TEST(TokenizerJson, SaysWhatItCannotExpress) {
  const auto reason = [](auto change) {
    SentencePieceModel model = bpe_of({"a", "b"});
    change(model);
    return not_in_tokenizer_json(model);
  };
  using M = SentencePieceModel;
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(reason([](M&) {}), "");
  has(reason([](M& m) { m.model = PieceModel::kUnigram; }), "unigram");
  has(reason([](M& m) { m.model = PieceModel::kChar; }), "char model; expected bpe");
  has(reason([](M& m) { m.changes_characters = true; }), "normalizer_spec");
  has(reason([](M& m) { m.changes_decoded_text = true; }), "denormalizer_spec");
  has(reason([](M& m) { m.space_as_suffix = true; }), "treat_whitespace_as_suffix");
  has(reason([](M& m) { m.escape_whitespaces = false; }), "escape_whitespaces");
  has(reason([](M& m) { m.pieces[2].type = PieceType::kUserDefined; }),
      "piece 2, 'b', is user-defined");
  has(reason([](M& m) { m.pieces[1].type = PieceType::kUnused; }), "piece 1, 'a', is unused");
  has(reason([](M& m) { m.pieces[1].type = PieceType::kControl; }), "a single character");
  has(reason([](M& m) { m.pieces[1].text = "a b"; }), "has a space");
  has(reason([](M& m) { m.pieces[1].text = "\xFF"; }), "UTF-8");
  has(reason([](M& m) { m.pieces[1].text = std::string(5'000'000, 'a'); }),
      "piece 1 has 5000000 bytes; expected at most 4096");
  has(reason([](M& m) { m.pieces.erase(m.pieces.begin()); }), "unknown");
  has(not_in_tokenizer_json(golden_model("unigram")), "unigram");
}

// --- model file ----------------------------------------------------------------------------------

TEST(SentencePieceModel, SaysHowItWasTrained) {
  const SentencePieceModel bare = golden_model("bpe_bare"), squeezed = golden_model("bpe_squeezed");
  EXPECT_FALSE(bare.add_dummy_prefix);
  EXPECT_TRUE(squeezed.add_dummy_prefix);
  EXPECT_FALSE(bare.remove_extra_whitespaces);
  EXPECT_TRUE(squeezed.remove_extra_whitespaces);
  EXPECT_TRUE(bare.byte_fallback);
  EXPECT_FALSE(golden_model("bpe_unknown").byte_fallback);
  EXPECT_EQ(golden_model("unigram").model, PieceModel::kUnigram);
  EXPECT_EQ(bare.model, PieceModel::kBpe);
  EXPECT_EQ(bare.pieces[3].text, "<pad>");
  EXPECT_EQ(bare.pieces[3].type, PieceType::kControl);
  EXPECT_EQ(bare.pieces[4].type, PieceType::kByte);
  EXPECT_EQ(bare.pieces.back().type, PieceType::kNormal);
  EXPECT_LT(bare.pieces.back().score, -1);
}

TEST(SentencePieceModel, TornFilesAreReadToTheirEnd) {
  const std::string whole = test::read_text(golden_path("bpe.model"));
  for (size_t size = 0; size < whole.size(); size += 61)
    EXPECT_LE(parse_sentencepiece_model(whole.substr(0, size)).pieces.size(), 480u);
}

}  // namespace
}  // namespace mpt
