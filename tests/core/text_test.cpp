// Human-readable text from text.h.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/text/counted.h"
#include "core/text/library_message.h"
#include "core/text/shown_text.h"

namespace mpt {
namespace {

std::string parse_failure(const std::string& text) {
  try {
    return nlohmann::json::parse(text).dump();
  } catch (const nlohmann::json::exception& failure) {
    return library_message(failure.what());
  }
}

TEST(LibraryMessage, IsWithoutNamesOfTheLibrary) {
  EXPECT_TRUE(parse_failure("{").starts_with("line 1, column 2: syntax error"))
      << parse_failure("{");
  EXPECT_EQ(library_message("[json.exception.type_error.302] type must be string, but is number"),
            "type must be string, but is number");
  EXPECT_EQ(library_message(
                "Internal: ./src/sentencepiece_processor.cc(232) [model_proto->Parse(x[0])] "),
            "");
  EXPECT_EQ(library_message(
                "Internal: src/trainer_interface.cc(582) [(a) == (b)] Vocabulary size too high"),
            "Vocabulary size too high");
  EXPECT_EQ(library_message("disk full"), "disk full");
}

TEST(LibraryMessage, IsShort) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "é";
  const std::string message = parse_failure("\"" + text);
  EXPECT_LT(message.size(), 310u);
  EXPECT_TRUE(message.ends_with("é...")) << message;
}

TEST(Shortened, IsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abcd", 4), "abcd");
  EXPECT_EQ(shortened("abcde", 4), "abcd...");
  EXPECT_EQ(shortened("abcé", 4), "abc...");
  EXPECT_EQ(shortened("", 0), "");
}

TEST(WithoutControls, ReplacesWhatSteersATerminalAndWhatIsNoText) {
  EXPECT_EQ(without_controls("a\tb\né ▁🙂"), "a\tb\né ▁🙂");
  EXPECT_EQ(without_controls("\x1b[2J\r\x7f" + std::string(1, '\0')),
            "\uFFFD[2J\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(without_controls("\u0080\u009B31m\u00A0"), "\uFFFD\uFFFD31m\u00A0");
  EXPECT_EQ(without_controls("\xff\xc2"), "\uFFFD\uFFFD");  // only the start of a character
  EXPECT_EQ(without_controls("\xe2\x96z"), "\uFFFD\uFFFDz");
  EXPECT_EQ(without_controls(""), "");
}

TEST(Counted, OneIsNoPlural) {
  EXPECT_EQ(counted(0, "token"), "0 tokens");
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(-1, "token"), "-1 tokens");
}

}  // namespace
}  // namespace mpt
