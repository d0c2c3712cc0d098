// Bytes of the text that tokens represent: those of the text itself, however its pieces split it.
#include "text/text_bytes.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/tensor.h"
#include "data/data_files.h"
#include "support/files.h"

namespace mpt {
namespace {

using Tokens = std::vector<int32_t>;

// Consecutive documents, each with its end, as in shards.
struct Stream {
  Tokens ids;
  int64_t bytes = 0;  // of the texts
};
Stream stream_of(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int32_t end) {
  Stream stream{{end}};
  for (const std::string& text : texts) {
    const Tokens ids = tokenizer.encode(text);
    stream.ids.insert(stream.ids.end(), ids.begin(), ids.end());
    stream.ids.push_back(end);
    stream.bytes += std::ssize(text);
  }
  return stream;
}
Stream stream_of(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  return stream_of(tokenizer, texts, int32_t(tokenizer.eos_id()));
}

int64_t bytes_of(const TextBytes& text, const Tokens& ids) {
  const std::span all(ids);
  return text.of_targets(all.first(ids.size() - 1), all.subspan(1)).value();
}

// Counts the bytes of the rows that the tokens are split into.
int64_t bytes_of_rows(const TextBytes& text, const Tokens& ids, size_t length) {
  int64_t bytes = 0;
  for (size_t first = 0; first + 1 < ids.size(); first += length) {
    const size_t count = std::min(length, ids.size() - 1 - first);
    bytes += text.of_targets(std::span(ids).subspan(first, count),
                             std::span(ids).subspan(first + 1, count))
                 .value();
  }
  return bytes;
}

// Characters that the tokenizer spells in two, three and four byte pieces, spaces at the ends and
// in a row, and the symbol that represents a space.
const std::vector<std::string> kSampleTexts{
    "kalomi terane",     " leading",      "trailing  ",  "  two  two  ",
    "Café 漢字 😀 12345", "e\u0301\u0302", "\n\n\tx\r\n", "x"};

TEST(TextBytes, AreThoseOfTheText) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer);
  for (const std::string& one : kSampleTexts) {
    const Stream stream = stream_of(tokenizer, {one});
    EXPECT_EQ(bytes_of(text, stream.ids), stream.bytes) << '"' << one << '"';
  }
  const Stream all = stream_of(tokenizer, kSampleTexts);
  EXPECT_EQ(bytes_of(text, all.ids), all.bytes);
}

// GPT-2's kind, from the goldens: a piece is the bytes that it spells.
TEST(TextBytes, OfByteLevelPiecesAreThoseTheySpell) {
  const Tokenizer tokenizer = Tokenizer::load(MPT_SOURCE_DIR "/tests/golden/subword/gpt2.json");
  const TextBytes text = TextBytes::of(tokenizer);
  for (const std::string& one : kSampleTexts) {
    Tokens ids = tokenizer.encode(one);
    ids.insert(ids.begin(), 0);
    EXPECT_EQ(bytes_of(text, ids), std::ssize(one)) << one;
  }
}

const std::vector<std::string> kShortTexts{"ab ab", "a", "b a  ab", "ab\nba", "\n a"};
constexpr int64_t kShortBytes = 5 + 1 + 7 + 5 + 3;

constexpr const char* kLlama2Normalizer =
    R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})";

// BPE of "a", "b", a space and a line end, with "<|end|>" after the pieces.
Tokenizer tokenizer_json(const std::string& normalizer, const std::string& pre_tokenizer,
                         const std::string& decoder, std::string_view space,
                         std::string_view line_end, const std::string& more = "") {
  const std::string model = fmt::format(
      R"({{"type":"BPE","unk_token":null,"byte_fallback":{},"vocab":{{"a":0,"b":1,"{}":2,"{}":3,"ab":4,"{}a":5{}}},"merges":[["a","b"],["{}","a"]]}})",
      !more.empty(), space, line_end, space, more, space);
  return Tokenizer::load(test::write_text(
      test::fresh_directory() + "/tokenizer.json",
      fmt::format(
          R"({{"added_tokens":[{{"id":{},"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}}],"normalizer":{},"pre_tokenizer":{},"post_processor":null,"decoder":{},"model":{}}})",
          6 + std::ranges::count(more, ':'), normalizer, pre_tokenizer, decoder, model)));
}

int64_t bytes_of_short_texts(const Tokenizer& tokenizer) {
  const auto end = int32_t(tokenizer.vocab_size() - 1);
  return bytes_of(TextBytes::of(tokenizer), stream_of(tokenizer, kShortTexts, end).ids);
}

TEST(TextBytes, LeaveOutTheSpaceThatByteLevelAdds) {
  for (const char* add : {"true", "false"}) {
    const std::string step = fmt::format(
        R"({{"type":"ByteLevel","add_prefix_space":{},"trim_offsets":true,"use_regex":true}})",
        add);
    EXPECT_EQ(bytes_of_short_texts(tokenizer_json("null", step, step, "Ġ", "Ċ")), kShortBytes)
        << add;
  }
}

TEST(TextBytes, OfMetaspaceAndOfNormalizersAreThoseOfTheText) {
  for (const char* scheme : {"first", "always", "never"}) {
    const std::string step = fmt::format(
        R"({{"type":"Metaspace","replacement":"▁","prepend_scheme":"{}","split":true}})", scheme);
    EXPECT_EQ(bytes_of_short_texts(tokenizer_json("null", step, step, "▁", "\\n")), kShortBytes)
        << scheme;
    EXPECT_EQ(bytes_of_short_texts(tokenizer_json("null", step, "null", "▁", "\\n")), kShortBytes)
        << "without a decoder";
  }
  EXPECT_EQ(bytes_of_short_texts(tokenizer_json(kLlama2Normalizer, "null", "null", "▁", "\\n")),
            kShortBytes);
  EXPECT_EQ(bytes_of_short_texts(tokenizer_json("null", "null", "null", " ", "\\n")), kShortBytes);
}

Tokenizer without_space_piece(const Tokenizer& tokenizer) {
  std::string model = tokenizer.model_bytes();
  const std::string piece = "\x0A\x03\xE2\x96\x81", other = "\x0A\x03ZQZ";
  model.replace(model.find(piece), piece.size(), other);
  return Tokenizer::load(test::write_text(test::fresh_directory() + "/a.model", model));
}

// Each byte of a character without a piece is a token, even for the symbol that represents a space.
TEST(TextBytes, CountASpaceThatIsSpelledInBytesOnce) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += fmt::format(R"(,"<0x{:02X}>":{})", byte, 6 + byte);
  const Tokenizer tokenizer = tokenizer_json(kLlama2Normalizer, "null", "null", "?", "!", bytes);
  EXPECT_GT(tokenizer.encode(" ").size(), 3u);
  EXPECT_EQ(bytes_of_short_texts(tokenizer), kShortBytes);

  const Tokenizer changed = without_space_piece(Tokenizer::load(test::small_tokenizer()));
  EXPECT_EQ(std::ranges::count(changed.encode("x y"), changed.encode("x y").front()), 2);
  std::vector<std::string> texts = kSampleTexts;
  texts.emplace_back("x y z  q");
  texts.emplace_back("\u2580 \u25A0\u2581.\u5581 \u5582");  // begin or end as a space symbol
  for (const std::string& text : texts)
    EXPECT_EQ(bytes_of(TextBytes::of(changed), stream_of(changed, {text}).ids),
              std::ssize(text) - 2 * test::count(text, "\u2581"))
        << text;
}

TEST(TextBytes, LeaveOutTheSpaceBehindATextOfASuffixModel) {
  // Adds more of the trainer's settings, the 24th of which is treat_whitespace_as_suffix.
  const std::string model =
      read_tokenizer_file(test::small_tokenizer()).bytes + "\x12\x03\xC0\x01\x01";
  const Tokenizer tokenizer =
      Tokenizer::load(test::write_text(test::fresh_directory() + "/a.model", model));
  for (const std::string& text : kSampleTexts)
    EXPECT_EQ(bytes_of(TextBytes::of(tokenizer), stream_of(tokenizer, {text}).ids),
              std::ssize(text))
        << text;
}

TEST(TextBytes, AreNotKnownWhereTextIsLeftOut) {
  const auto why = [](const Tokenizer& tokenizer) {
    const TextBytes text = TextBytes::of(tokenizer);
    EXPECT_EQ(text.of_targets(Tokens{0}, Tokens{1}), std::nullopt);
    EXPECT_EQ(text.first_unknown(Tokens{kIgnoreTarget, 1}), 1);
    return text.why_unknown(1);
  };
  const std::string removed =
      R"({"type":"Split","pattern":{"String":"\n"},"behavior":"Removed","invert":false})";
  const Tokenizer tokenizer = tokenizer_json("null", removed, "null", " ", "\\n");
  EXPECT_EQ(why(tokenizer),
            tokenizer.path() + ": its pre_tokenizer leaves out text, or adds spaces within it");
  const std::string doubled = R"({"type":"Replace","pattern":{"String":" "},"content":"__"})";
  EXPECT_TRUE(test::has(why(tokenizer_json(doubled, "null", "null", " ", "\\n")),
                        "it makes 'x__x' of 'x x'"));
}

// Split into rows anywhere, even in the middle of a character, the rows add up.
TEST(TextBytes, OfRowsAddUp) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer()),
                  spelling = without_space_piece(tokenizer);
  for (const Tokenizer* one : {&tokenizer, &spelling}) {
    const Stream all = stream_of(*one, kSampleTexts);
    for (const size_t length : {1U, 2U, 3U, 7U})
      EXPECT_EQ(bytes_of_rows(TextBytes::of(*one), all.ids, length), all.bytes) << length;
  }
}

TEST(TextBytes, OfWhatIsNotPredictedDoNotCount) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer);
  const Tokens ids = stream_of(tokenizer, {"kalomi"}).ids;
  const Tokens inputs(ids.begin(), ids.end() - 1), nothing(inputs.size(), kIgnoreTarget);
  EXPECT_EQ(text.of_targets(inputs, nothing), 0);
}

TEST(TextBytes, OfUnknownPiecesAreNotKnown) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer);
  const Tokens inputs{5, 6};
  for (const int32_t id : {int32_t(tokenizer.unk_id()), int32_t(tokenizer.vocab_size()), -2})
    EXPECT_EQ(text.of_targets(inputs, Tokens{7, id}), std::nullopt) << id;
  EXPECT_EQ(text.why_unknown(int32_t(tokenizer.unk_id())),
            tokenizer.path() +
                ": has no text for the token 0 of the data, its unknown piece or an "
                "id without one");
}

}  // namespace
}  // namespace mpt
