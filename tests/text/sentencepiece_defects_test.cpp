// Checks of a SentencePiece model before the library reads it.
#include "text/sentencepiece/sentencepiece_defects.h"

#include <cstring>

#include <sentencepiece_trainer.h>

#include "data/data_files.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

using test::fresh_directory;
using test::write_text;

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string number_field(uint32_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}
std::string text_field(uint32_t number, std::string_view text) {
  return varint(number << 3 | 2) + varint(text.size()) + std::string(text);
}
std::string model_with_map(const std::string& map) { return text_field(3, text_field(2, map)); }

std::string user_piece(std::string_view text) {
  return text_field(1, text_field(1, text) + number_field(3, 4));
}

constexpr const char* kMapDefect = "the character map of its normalization is damaged";

// A double array that finds each of "a", "aa", ... up to `values` times 'a': unit i is in block i,
// and its children in the next one.
std::vector<uint32_t> array_of_as(uint32_t values) {
  constexpr uint32_t kBlock = 256, kHasValue = 1u << 8, kValue = 1u << 31;
  std::vector<uint32_t> units(kBlock * (values + 2), kValue);  // found by no search
  units[0] = kBlock << 10;
  for (uint32_t i = 1; i <= values; ++i) {
    const uint32_t at = kBlock * i + 'a', children = kBlock * (i + 1);
    units[at] = (at ^ children) << 10 | kHasValue | 'a';
  }
  return units;
}

std::string map_of(const std::vector<uint32_t>& units, const std::string& texts) {
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string map(sizeof bytes + bytes, '\0');
  std::memcpy(map.data(), &bytes, sizeof bytes);
  std::memcpy(map.data() + sizeof bytes, units.data(), bytes);
  return map + texts;
}

const std::string kMapTexts("x\0", 2);

TEST(SentencePieceModel, SoundMapsHaveNoDefect) {
  EXPECT_EQ(defect_of_model(""), "");
  EXPECT_EQ(defect_of_model(model_with_map("")), "");
  for (const uint32_t values : {1u, 2u, 32u})
    EXPECT_EQ(defect_of_model(model_with_map(map_of(array_of_as(values), kMapTexts))), "")
        << values;
}

TEST(SentencePieceModel, MoreValuesOnOneWayThanTheLibraryHasRoomFor) {
  EXPECT_EQ(defect_of_model(model_with_map(map_of(array_of_as(33), kMapTexts))), kMapDefect);
}

TEST(SentencePieceModel, TextsAndPiecesThatTakeLongToFind) {
  constexpr uint32_t kHasValue = 1u << 8;
  const auto without_values = [&](uint32_t length) {
    std::vector<uint32_t> units = array_of_as(length);
    for (uint32_t i = 1; i < length; ++i) units[256 * i + 'a'] &= ~kHasValue;
    return model_with_map(map_of(units, kMapTexts));
  };
  EXPECT_EQ(defect_of_model(without_values(256)), "");
  EXPECT_EQ(defect_of_model(without_values(257)), kMapDefect);
  EXPECT_EQ(defect_of_model(text_field(1, text_field(1, std::string(4096, 'a')))), "");
  EXPECT_EQ(defect_of_model(text_field(1, text_field(1, std::string(4097, 'a')))),
            "one of its pieces has 4097 bytes; at most 4096 are accepted");
}

TEST(SentencePieceModel, WaysOutOfTheArray) {
  const std::vector<uint32_t> good = array_of_as(2);
  for (const auto& [unit, bits] : std::vector<std::pair<size_t, uint32_t>>{
           {0, 0xFFFFFC00},                                      // children far beyond the end
           {0, static_cast<uint32_t>(good.size()) << 10},        // just past it
           {256 + 'a', good[256 + 'a'] | 1u << 9},               // an offset times 256
           {512, 1u << 31 | 2},                                  // a value beyond the texts
           {256 + 'a', uint32_t{'a'} << 10 | 1u << 8 | 'a'}}) {  // its own child
    std::vector<uint32_t> units = good;
    units[unit] = bits;
    EXPECT_EQ(defect_of_model(model_with_map(map_of(units, kMapTexts))), kMapDefect) << unit;
  }
}

TEST(SentencePieceModel, MapsOfWrongSize) {
  const std::string good = map_of(array_of_as(1), kMapTexts);
  for (const std::string& map :
       {good.substr(0, 3), good.substr(0, 4), good.substr(0, 100), good.substr(0, good.size() - 1),
        good.substr(0, good.size() - 2), map_of({}, kMapTexts), map_of({0}, kMapTexts)})
    EXPECT_EQ(defect_of_model(model_with_map(map)), kMapDefect) << map.size();
  // Both as the normalization and as its inverse.
  EXPECT_EQ(defect_of_model(text_field(5, text_field(2, good.substr(0, 9)))), kMapDefect);
}

TEST(SentencePieceModel, UserPiecesThatBeginOneAnother) {
  std::string model;
  for (size_t length = 64; length > 0; --length)
    model += user_piece(std::string(length, 'a')) + user_piece(std::string(length, 'b'));
  EXPECT_EQ(defect_of_model(model), "");
  EXPECT_EQ(defect_of_model(model + user_piece(std::string(65, 'a'))),
            "more than 64 of its user-defined pieces begin with one another");
}

TEST(SentencePieceModel, WhatIsNoProtocolBuffer) {
  EXPECT_EQ(defect_of_model("garbage"), "it is no valid protocol buffer");
  EXPECT_EQ(defect_of_model("\x0b\x0c"), "it is no valid protocol buffer");  // a group
  EXPECT_EQ(defect_of_model(std::string("\x0a\x7f", 2)), "it is no valid protocol buffer");
  EXPECT_EQ(defect_of_model(text_field(1, "\x0a\x7f")), "one of its pieces is damaged");
  EXPECT_EQ(defect_of_model(text_field(3, "\x12\x7f")), "its normalization is damaged");
}

// The library's own map, of 100,000 units, must be sound; and with any change to one of its units,
// the model is refused or usable.
TEST(SentencePieceModel, TheLibrarysMap) {
  const std::string directory = fresh_directory(), path = directory + "/nfkc.model";
  write_text(directory + "/text.txt", test::generated_text(1, 2000));
  const auto status = sentencepiece::SentencePieceTrainer::Train(fmt::format(
      "--input={0}/text.txt --model_prefix={0}/nfkc --vocab_size=60 --hard_vocab_limit=false "
      "--normalization_rule_name=nmt_nfkc --minloglevel=2",
      directory));
  ASSERT_TRUE(status.ok()) << status.ToString();
  const std::string good = test::read_text(path);
  ASSERT_GT(good.size(), 100'000u);
  EXPECT_EQ(defect_of_model(good), "");
  EXPECT_EQ(Tokenizer::load(path).decode(Tokenizer::load(path).encode("ｋａｌｏ")), "kalo");

  int refused = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    std::string bad = good;
    for (int byte = 0; byte < 8; ++byte) bad[random() % 200'000] ^= static_cast<char>(random());
    if (!defect_of_model(bad).empty()) {
      ++refused;
      continue;
    }
    try {
      (void)Tokenizer::load(write_text(directory + "/bad.model", bad)).encode("ｋａｌｏ ½ Äpfel");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace mpt
