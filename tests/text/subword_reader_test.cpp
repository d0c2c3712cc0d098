// Refusals of readers of tokenizer.json and tiktoken files, and how they name the cause.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utf8proc.h>

#include "data/data_files.h"
#include "text/subword/added_tokens.h"
#include "text/subword/int_table.h"
#include "text/subword/normalizer.h"
#include "text/subword/regex.h"
#include "text/subword/text_decoder.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files/tiktoken_reader.h"
#include "text/tokenizer_files/tokenizer_json_reader.h"

namespace mpt {
namespace {

using nlohmann::json;
using test::expect_error;

json small_file() {
  return json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<e>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated",
                      "invert": false},
    "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": "",
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]}})");
}

struct Refusal {
  const char* pointer;  // of the replaced value
  const char* value;
  std::vector<std::string> said;
};

TEST(TokenizerJsonReader, ReadsASmallFile) {
  const SubwordTokenizer tokenizer = read_tokenizer_json(small_file().dump());
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.encode("abba<e>x"), (std::vector<int32_t>{3, 2, 1, 4, 0}));
}

TEST(TokenizerJsonReader, NamesWhatItDoesNotRead) {
  for (const Refusal& c : std::vector<Refusal>{
           {"/version", "\"2.0\"", {"version: found the text \"2.0\"; expected 1.0"}},
           {"/truncation", "{\"max_length\": 5}", {"truncation: found an object", "null"}},
           {"/padding", "{}", {"padding: ", "null"}},
           {"/extra", "1", {"extra: the key is not read here", "version"}},
           {"/added_tokens/0/id", "9", {"added_tokens[0].id: found 9; expected 4"}},
           {"/added_tokens/0/content", "\"\"", {"added_tokens[0].content"}},
           {"/added_tokens/0/lstrip", "null", {"added_tokens[0].lstrip: found null"}},
           {"/normalizer/type", "\"Precompiled\"", {"normalizer.type", "Precompiled", "NFKC"}},
           {"/normalizer",
            R"({"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]})",
            {"normalizer.normalizers[0].type", "BertNormalizer"}},
           {"/normalizer",
            R"({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "b"})",
            {"normalizer.pattern", "a*", "empty"}},
           {"/pre_tokenizer/type", "\"Whitespace\"", {"pre_tokenizer.type", "Whitespace"}},
           {"/pre_tokenizer/behavior", "\"Dropped\"", {"pre_tokenizer.behavior", "Isolated"}},
           {"/pre_tokenizer/pattern", R"({"Regex": "\\w+"})", {"pre_tokenizer.pattern", "\\w"}},
           {"/pre_tokenizer/pattern", R"({"Regex": "(a"})", {"pre_tokenizer.pattern", "(a"}},
           {"/pre_tokenizer",
            R"({"type": "Sequence", "pretokenizers": [
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
                {"type": "Digits", "individual_digits": true}]})",
            {"pre_tokenizer.pretokenizers[1]", "nothing after ByteLevel"}},
           {"/post_processor", R"({"type": "BertProcessing"})", {"post_processor.type"}},
           {"/decoder/type", "\"CTC\"", {"decoder.type", "CTC"}},
           {"/model/type", "\"WordPiece\"", {"model.type", "WordPiece", "BPE or Unigram"}},
           {"/model/dropout", "0.1", {"model.dropout: found 0.1"}},
           {"/model/end_of_word_suffix", "\"</w>\"", {"model.end_of_word_suffix", "</w>"}},
           {"/model/cache", "5", {"model.cache: the key is not read here"}},
           {"/model/vocab/ab", "1", {"model.vocab", "the same id 1"}},
           {"/model/vocab/ab", "3000000", {"model.vocab", "id 3000000"}},
           {"/model/vocab/ab", "-1", {"model.vocab", "-1"}},
           {"/model/merges/0", "\"a c\"", {"model.merges[0]: 'c' is not in the vocabulary"}},
           {"/model/merges/0", "[\"b\", \"a\"]", {"model.merges[0]: 'ba' is not in"}},
           {"/model/merges/0", "\"a b c\"", {"model.merges[0]", "two pieces"}},
           {"/model/merges", "{}", {"model.merges", "list"}},
       }) {
    SCOPED_TRACE(std::string(c.pointer) + " " + c.value);
    json file = small_file();
    file[json::json_pointer(c.pointer)] = json::parse(c.value);
    try {
      read_tokenizer_json(file.dump());
      ADD_FAILURE() << "accepted";
    } catch (const Error& refusal) {
      for (const std::string& part : c.said)
        EXPECT_NE(std::string(refusal.what()).find(part), std::string::npos) << refusal.what();
    }
  }
}

TEST(TokenizerJsonReader, JsonThatIsNoneOrSaysSomethingTwiceIsRefused) {
  expect_error([] { read_tokenizer_json("{"); }, {"not valid JSON"});
  expect_error([] { read_tokenizer_json("[]"); }, {"expected an object"});
  expect_error([] { read_tokenizer_json(R"({"version": "1.0", "version": "1.0"})"); },
               {"version", "twice"});
  expect_error([] { read_tokenizer_json(std::string(200, '[')); }, {"deeper"});
}

// The path of each element would take the square of the file's size.
TEST(TokenizerJsonReader, LongNamesBesideLongListsAreRefused) {
  const std::string name(100'000, 'n');
  std::string ids = "0";
  for (int i = 0; i < 100'000; ++i) ids += ",0";
  const auto with_ids = [&](const std::string& token) {
    return fmt::format(
        R"({{"model":{{"type":"BPE","vocab":{{"a":0}},"merges":[]}},"post_processor":
        {{"type":"TemplateProcessing","single":[{{"SpecialToken":{{"id":"{0}"}}}},
        {{"Sequence":{{"id":"A"}}}}],"special_tokens":{{"{0}":{{"ids":[{1}]}}}}}}}})",
        token, ids);
  };
  expect_error([&] { read_tokenizer_json(with_ids(name)); },
               {"post_processor.special_tokens.nnn", "at most 1000"});
  EXPECT_EQ(read_tokenizer_json(with_ids("n")).parts().bos, -1);
}

// A piece of a million characters without a space takes linear, not quadratic, time.
TEST(Bpe, LongWordsTakeTimeInProportion) {
  json file = small_file();
  const SubwordTokenizer tokenizer = read_tokenizer_json(file.dump());
  std::string word;
  while (word.size() < 1'000'000) word += "ab";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(word).size(), word.size() / 2);
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, 'a')).size(), 1'000'000u);
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, ' ')).size(), 1'000'000u);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 60);  // quadratic time would be hours
}

TEST(Normalizer, GrowthHasALimit) {
  json file = small_file();
  json twice = json::parse(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})");
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 60; ++i) file["normalizer"]["normalizers"].push_back(twice);
  const SubwordTokenizer tokenizer = read_tokenizer_json(file.dump());
  expect_error([&] { (void)tokenizer.encode("a"); }, {"64 times"});
}

TEST(Normalizer, FewBytesDoNotBecomeMany) {
  Normalizer normalizer;
  for (int i = 0; i < 16; ++i) normalizer.add(PrependText{std::string(256, 'x')});
  expect_error([&] { (void)normalizer.apply("t"); }, {"64 times", "128 bytes"});
}

// Replacements share the limit on the growth of all pieces together.
TEST(TextDecoder, GrowthHasALimit) {
  TextDecoder decoder;
  decoder.add(ReplaceMatches{Regex::of_text("a"), std::string(63, 'b')});
  const std::string piece(4096, 'a');
  EXPECT_EQ(decoder.decode({piece, piece}).size(), 2u * 63 * 4096);
  decoder.add(ReplaceMatches{Regex::of_text("b"), std::string(256, 'c')});
  expect_error([&] { (void)decoder.decode(std::vector<std::string>(100, piece)); }, {"64 times"});
}

TEST(TokenizerJsonReader, StepsAreCountedThroughSequences) {
  json file = small_file();
  const json step = {{"type", "NFC"}};
  const auto sequence = [](const json& steps) {
    return json{{"type", "Sequence"}, {"normalizers", steps}};
  };
  file["normalizer"] = sequence(json::array({sequence(json(49, step)), sequence(json(49, step))}));
  (void)read_tokenizer_json(file.dump());
  file["normalizer"]["normalizers"][1]["normalizers"].push_back(step);
  expect_error([&] { (void)read_tokenizer_json(file.dump()); },
               {"normalizer.normalizers[1].normalizers", "at most 100 steps"});
}

// --- added tokens --------------------------------------------------------------------------------

AddedToken line_end(bool lstrip, bool rstrip) {
  return {.content = "\n", .id = 7, .lstrip = lstrip, .rstrip = rstrip};
}

std::vector<std::string> split_by(const AddedToken& token, std::string_view text) {
  TextPieces pieces;
  AddedTokens({token}, {}).split(text, {}, SpecialTokens::kMatch, pieces);
  std::vector<std::string> all;
  for (const TextPiece& piece : pieces.list)
    all.push_back((piece.token < 0 ? "" : fmt::format("{}:", piece.token)) +
                  std::string(piece.text));
  return all;
}

TEST(AddedTokens, TakeTheWhiteSpaceBesideThem) {
  using Pieces = std::vector<std::string>;
  const std::string text = "a \n \n b";
  EXPECT_EQ(split_by(line_end(false, false), text), (Pieces{"a ", "7:\n", " ", "7:\n", " b"}));
  EXPECT_EQ(split_by(line_end(true, false), text), (Pieces{"a", "7: \n", "7: \n", " b"}));
  EXPECT_EQ(split_by(line_end(false, true), text), (Pieces{"a ", "7:\n \n ", "7:\n ", "b"}));
  EXPECT_EQ(split_by(line_end(true, true), text), (Pieces{"a", "7: \n \n ", "b"}));
}

// Quadratic time would be hours.
TEST(AddedTokens, ALongSpanOfWhiteSpaceTakesTimeInProportion) {
  const std::string text = "a" + std::string(1'000'000, '\n') + "b";
  for (const bool left : {true, false}) {
    TextPieces pieces;
    AddedTokens({line_end(left, !left)}, {}).split(text, {}, SpecialTokens::kMatch, pieces);
    EXPECT_EQ(pieces.list.size(), 1'000'002u);
  }
}

TEST(AddedTokens, WhatIsLookedForHasALimit) {
  Normalizer normalizer;
  normalizer.add(ReplaceMatches{Regex::of_text("a"), std::string(60, 'b')});
  const auto add = [&](const std::vector<std::string>& contents) {
    std::vector<AddedToken> tokens;
    for (const std::string& content : contents)
      tokens.push_back({.content = content, .id = int32_t(tokens.size()), .normalized = true});
    AddedTokens(std::move(tokens), normalizer);
  };
  add({std::string(68, 'a')});
  expect_error([&] { add({std::string(69, 'a')}); },
               {"the added token 'aaa", "4140 bytes", "4096"});
  expect_error([&] { add(std::vector<std::string>(5000, std::string(68, 'a'))); },
               {"those up to it 167", "16777216"});
}

// --- tables --------------------------------------------------------------------------------------

// These keys all collided when the table used the upper half of their product with a well-known
// number.
TEST(IntTable, NobodyCanChooseKeysThatCollide) {
  constexpr uint64_t kKeys = 300'000;
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - 0x9E3779B97F4A7C15u * inverse;
  ASSERT_EQ(inverse * 0x9E3779B97F4A7C15u, 1u);
  IntTable table;
  for (uint64_t i = 0; i < kKeys; ++i) table.insert(i * inverse, i);
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(*table.find(i * inverse), i);
  EXPECT_EQ(table.size(), kKeys);
}

// --- normal forms --------------------------------------------------------------------------------

std::string by_the_library(const std::string& text, utf8proc_option_t options) {
  utf8proc_uint8_t* result = nullptr;
  const auto bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                  utf8proc_ssize_t(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> freed(result, &std::free);
  return {reinterpret_cast<const char*>(result), size_t(bytes)};
}

TEST(Normalizer, MarksComeInTheLibrarysOrder) {
  // Marks of several classes, some that become others, and the characters they combine with.
  const std::vector<std::string> characters{"a",      "e",      "\u0300", "\u0301", "\u0315",
                                            "\u0316", "\u031B", "\u0327", "\u0345", "\u0344",
                                            "\u0340", "\u0F71", "\u0F72", "\u0F73", "\u1E69",
                                            "\uAC00", "\u11A8", "\uFDFA", "\u3099"};
  const auto stable = [](int options) { return utf8proc_option_t(UTF8PROC_STABLE | options); };
  const std::vector<std::pair<NormalForm, utf8proc_option_t>> forms{
      {NormalForm::kNfc, stable(UTF8PROC_COMPOSE)},
      {NormalForm::kNfd, stable(UTF8PROC_DECOMPOSE)},
      {NormalForm::kNfkc, stable(UTF8PROC_COMPOSE | UTF8PROC_COMPAT)},
      {NormalForm::kNfkd, stable(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT)}};
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (auto left = random() % 30; left > 0; --left)
      text += characters[random() % characters.size()];
    for (const auto& [form, options] : forms)
      ASSERT_EQ(normalized(text, form), by_the_library(text, options)) << text;
  }
}

// The library's own sort would take minutes.
TEST(Normalizer, ManyMarksTakeTimeInProportion) {
  std::string text = "a", ordered = "a";
  constexpr int kMarks = 260'000;
  for (const char* const mark : {"\u0315", "\u0316"})  // of classes 232 and 220
    for (int i = 0; i < kMarks; ++i) text += mark;
  for (const char* const mark : {"\u0316", "\u0315"})
    for (int i = 0; i < kMarks; ++i) ordered += mark;
  EXPECT_EQ(normalized(text, NormalForm::kNfd), ordered);
}

TEST(Normalizer, FormsChangeOnlyWhatTheyMust) {
  EXPECT_EQ(normalized("plain é text", NormalForm::kNfc), "plain é text");
  EXPECT_EQ(normalized("e\xCC\x81x e\xCC\x81", NormalForm::kNfc), "éx é");
  EXPECT_EQ(normalized("é", NormalForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(normalized("ﬁ①", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(normalized("", NormalForm::kNfc), "");
}

// --- regular expressions -------------------------------------------------------------------------

std::vector<std::string> matches(const Regex& regex, std::string_view text) {
  std::vector<std::string> found;
  for (size_t at = 0;;) {
    const auto match = regex.find(text, at);
    if (!match) return found;
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
}

TEST(Regex, SyntaxesDifferWhereTheirLibrariesDo) {
  using Found = std::vector<std::string>;
  const Regex ruby("a$", RegexSyntax::kOniguruma), rust("a$", RegexSyntax::kRust);
  EXPECT_EQ(matches(ruby, "a\na\n"), (Found{"a", "a"}));  // ends of lines
  EXPECT_EQ(matches(rust, "a\na"), Found{"a"});           // the end of the text
  EXPECT_EQ(matches(rust, "a\n"), Found{});
  EXPECT_EQ(matches(Regex("a{,2}b", RegexSyntax::kOniguruma), "aaab"), Found{"aab"});
  EXPECT_EQ(matches(Regex("a{1,2}+a", RegexSyntax::kRust), "aaa"), Found{"aaa"});
  expect_error([] { Regex("a{1,2}+", RegexSyntax::kOniguruma); }, {"a{1,2}+", "group"});
}

TEST(Regex, ClassesHaveTheLibrarysCharacters) {
  const auto is = [](const char* pattern, const char* text) {
    return Regex(pattern, RegexSyntax::kOniguruma).find(text, 0).has_value();
  };
  EXPECT_FALSE(is(R"(\s)", "\xE1\xA0\x8E"));  // only PCRE2 treats U+180E as white space
  EXPECT_TRUE(is(R"([^\s\p{L}\p{N}])", "\xE1\xA0\x8E"));
  EXPECT_TRUE(is(R"(\p{L})", "\xF0\xB1\x8D\x90"));  // U+31350, newer than PCRE2's letters
  EXPECT_FALSE(is(R"([^\s\p{L}\p{N}])", "\xF0\xB1\x8D\x90"));
  EXPECT_TRUE(is(R"([[a-c]x])", "b"));
  EXPECT_TRUE(is(R"(\S)", "a"));
  EXPECT_FALSE(is(R"(\S)", "\xC2\xA0"));
}

TEST(Regex, NamesWhatItDoesNotRead) {
  for (const char* pattern :
       {R"(\w)", R"(\b)", R"(\h)", "[a&&b]", "[[:alpha:]]", "[^[^a]]", "(?i)a", R"((?i:\p{L}))",
        R"(\p{Greek})", R"(\pL)", "a*", "(*UTF)", "[", "a)", R"(\x{110000})", "[z-a]", "\\"})
    test::expect_error([&] { Regex(pattern, RegexSyntax::kOniguruma); },
                       {"the regular expression", pattern});
}

TEST(Regex, SearchesEndAtALimit) {
  const Regex regex("(?:a+)+[bc]", RegexSyntax::kOniguruma);
  test::expect_error([&] { (void)regex.find(std::string(5000, 'a'), 0); },
                     {"(?:a+)+[bc]", "limit"});
}

// --- tiktoken ------------------------------------------------------------------------------------

std::string base64_byte(int byte) {
  constexpr std::string_view kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return {kSigns[size_t(byte) >> 2], kSigns[(size_t(byte) & 3) << 4], '=', '='};
}

std::string small_ranks(int bytes = 256) {
  std::string lines;
  for (int byte = 0; byte < bytes; ++byte)
    lines += base64_byte(byte) + " " + std::to_string(byte) + "\n";
  return lines + "YWI= 256\nYWJj 257\n";  // ab, abc
}

TEST(TiktokenReader, JoinsByRanks) {
  const std::string settings = R"({"pattern": "cl100k_base", "special_tokens": {"<e>": 300}})";
  const SubwordTokenizer tokenizer = read_tiktoken(tiktoken_with_settings(settings, small_ranks()));
  EXPECT_EQ(tokenizer.encode("abcab<e>"),
            (std::vector<int32_t>{257, 256, '<', 'e', '>'}));  // like encode_ordinary()
  EXPECT_EQ(tokenizer.vocab_size(), 301);
  EXPECT_TRUE(is_tiktoken(small_ranks()));
  EXPECT_FALSE(is_tiktoken("{\"pattern\": \"cl100k_base\"}"));
}

// Some editors write one first; the copy of the file has none, because other programs refuse it.
TEST(TokenizerFiles, AByteOrderMarkIsNoPartOfTheFile) {
  const std::string mark = "\xEF\xBB\xBF", directory = test::fresh_directory();
  const std::string content = small_file().dump();
  const Tokenizer tokenizer =
      Tokenizer::load(test::write_text(directory + "/tokenizer.json", mark + content));
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::kTokenizerJson);
  EXPECT_EQ(tokenizer.model_bytes(), content);
  const std::string ranks = test::write_text(directory + "/a.tiktoken", mark + small_ranks());
  test::write_text(ranks + ".json", mark + R"({"pattern": "gpt2", "special_tokens": {}})");
  EXPECT_EQ(Tokenizer::load(ranks).kind(), TokenizerKind::kTiktoken);
}

TEST(TiktokenReader, NamesWhatIsWrong) {
  const auto refused = [](const std::string& settings, const std::string& ranks,
                          std::initializer_list<std::string> said) {
    expect_error([&] { read_tiktoken(tiktoken_with_settings(settings, ranks)); }, said);
  };
  const std::string good = R"({"pattern": "cl100k_base"})";
  refused("{}", small_ranks(), {"pattern: found null"});
  refused(R"({"pattern": "unknown_base("})", small_ranks(), {"pattern", "unknown_base("});
  refused(R"({"pattern": "a", "file": 1})", small_ranks(), {"file: the key is not read"});
  refused(R"({"pattern": "a+", "special_tokens": {"<e>": 5}})", small_ranks(),
          {"special_tokens.<e>: found 5"});
  refused(R"({"pattern": "a+", "eos_token": "<e>"})", small_ranks(), {"eos_token"});
  refused(good, small_ranks(255), {"byte 0xff"});
  refused(good, small_ranks() + "YWJj 258\n", {"twice"});
  refused(good, small_ranks() + "YWJjZA== 257\n", {"same id 257"});
  refused(good, small_ranks() + "YWJj! 258\n", {"line 259"});
  refused(good, small_ranks() + "YWJjZA==\n", {"line 259"});
  refused(good, small_ranks() + "YWJjZA== 4000000\n", {"4000000"});
  const SubwordTokenizer gaps =
      read_tiktoken(tiktoken_with_settings(R"({"pattern": "a+"})", small_ranks()));
  expect_error([&] { (void)gaps.encode("aab"); }, {"leaves out", "0x62"});
}

}  // namespace
}  // namespace mpt
