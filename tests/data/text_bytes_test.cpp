// Bytes of the text that tokens stand for: those of the text itself, however its pieces split it.
#include "data/text_bytes.h"

#include <gtest/gtest.h>

#include "core/tensor.h"
#include "data/data_files.h"

namespace mpt {
namespace {

using Tokens = std::vector<int32_t>;

// Documents one after the other, each with its end, as shards hold them.
struct Stream {
  Tokens ids;
  int64_t bytes = 0;  // of the texts
};
Stream stream_of(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  Stream stream{{int32_t(tokenizer.eos_id())}};
  for (const std::string& text : texts) {
    const Tokens ids = tokenizer.encode(text);
    stream.ids.insert(stream.ids.end(), ids.begin(), ids.end());
    stream.ids.push_back(int32_t(tokenizer.eos_id()));
    stream.bytes += std::ssize(text);
  }
  return stream;
}

int64_t bytes_of(const TextBytes& text, const Tokens& ids) {
  const std::span all(ids);
  return text.of_targets(all.first(ids.size() - 1), all.subspan(1)).value();
}

// Characters that the tokenizer spells in two, three and four byte pieces, spaces at the ends and
// in a row, and the symbol that stands for a space.
const std::vector<std::string> kSampleTexts{
    "kalomi terane",     " leading",      "trailing  ",  "  two  two  ",
    "Café 漢字 😀 12345", "e\u0301\u0302", "\n\n\tx\r\n", "x"};

TEST(TextBytes, AreThoseOfTheText) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer).value();
  for (const std::string& one : kSampleTexts) {
    const Stream stream = stream_of(tokenizer, {one});
    EXPECT_EQ(bytes_of(text, stream.ids), stream.bytes) << '"' << one << '"';
  }
  const Stream all = stream_of(tokenizer, kSampleTexts);
  EXPECT_EQ(bytes_of(text, all.ids), all.bytes);
}

// GPT-2's kind, of the goldens: a piece is the bytes that it spells.
TEST(TextBytes, OfByteLevelPiecesAreThoseTheySpell) {
  const Tokenizer tokenizer = Tokenizer::load(MPT_SOURCE_DIR "/tests/golden/subword/gpt2.json");
  const TextBytes text = TextBytes::of(tokenizer).value();
  for (const std::string& one : kSampleTexts) {
    Tokens ids = tokenizer.encode(one);
    ids.insert(ids.begin(), 0);
    EXPECT_EQ(bytes_of(text, ids), std::ssize(one)) << one;
  }
}

// Cut into rows anywhere, in the middle of a character too, the rows add up.
TEST(TextBytes, OfRowsAddUp) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer).value();
  const Stream all = stream_of(tokenizer, kSampleTexts);
  for (const size_t length : {1U, 2U, 3U, 7U}) {
    int64_t bytes = 0;
    for (size_t first = 0; first + 1 < all.ids.size(); first += length) {
      const size_t count = std::min(length, all.ids.size() - 1 - first);
      bytes += text.of_targets(std::span(all.ids).subspan(first, count),
                               std::span(all.ids).subspan(first + 1, count))
                   .value();
    }
    EXPECT_EQ(bytes, all.bytes) << length;
  }
}

TEST(TextBytes, OfWhatIsNotPredictedDoNotCount) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer).value();
  const Tokens ids = stream_of(tokenizer, {"kalomi"}).ids;
  const Tokens inputs(ids.begin(), ids.end() - 1), nothing(inputs.size(), kIgnoreTarget);
  EXPECT_EQ(text.of_targets(inputs, nothing), 0);
}

TEST(TextBytes, OfUnknownPiecesAreNotKnown) {
  const Tokenizer tokenizer = Tokenizer::load(test::small_tokenizer());
  const TextBytes text = TextBytes::of(tokenizer).value();
  const Tokens inputs{5, 6};
  for (const int32_t id : {int32_t(tokenizer.unk_id()), int32_t(tokenizer.vocab_size()), -2})
    EXPECT_EQ(text.of_targets(inputs, Tokens{7, id}), std::nullopt) << id;
}

}  // namespace
}  // namespace mpt
