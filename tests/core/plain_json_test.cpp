// JSON as written by programs: accepted texts, and that size by itself is no obstacle.
#include <gtest/gtest.h>

#include "core/json/json_parse.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using nlohmann::json;

TEST(PlainJson, GivesTheValuesOfTheLibrary) {
  for (const char* text :
       {"null", "true", "-1", "18446744073709551615", "1.5e300", R"("a\u00e4\n")", "[]", "{}",
        R"([1,[2,{"a":[]}],"x"])", R"({"b":{"a":[{},[null,false]],"c":""},"a":-0.0})"})
    EXPECT_EQ(parse_plain_json(text), json::parse(text)) << text;
}

// A file's name may be any bytes.
TEST(PlainJson, TextsThatAreNotUtf8AreWritten) {
  const json value{{"path", "runs/b\xff"}};
  EXPECT_EQ(json_text(value), R"({"path":"runs/b)"
                              "\uFFFD"
                              R"("})");
  EXPECT_EQ(json_text(Json(value), 1), "{\n \"path\": \"runs/b\uFFFD\"\n}");
  EXPECT_EQ(short_json_text(value), R"({"path":"runs/b\ufffd"})");
}

TEST(PlainJson, RefusesWhatProgramsDoNotWrite) {
  const auto nested = [](size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_EQ(parse_plain_json(nested(64)), json::parse(nested(64)));
  EXPECT_ERROR(parse_plain_json(nested(65)), "nested deeper than 64 levels");
  EXPECT_ERROR(parse_plain_json(std::string(1'000'000, '[')), "nested deeper");
  EXPECT_ERROR(parse_plain_json(R"({"a":{"b":1,"c":2,"b":1}})"), "b: the key is there twice");
  EXPECT_ERROR(parse_plain_json(R"({"a":1e999})"), "not valid JSON");
  for (const char* text : {"", " ", "{", "[1,]", "{} x", "// a\n1", "nul", "\"\xFF\""})
    EXPECT_ERROR(parse_plain_json(text, "dir/a.json"), "dir/a.json: not valid JSON: ");
}

// A parser that rescans a container at each of its elements would take hours.
TEST(PlainJson, TakesTimeInProportionToTheText) {
  constexpr size_t kElements = 500'000;
  std::string list = "[", object = "{";
  for (size_t i = 0; i < kElements; ++i) {
    list += "{},";
    object += fmt::format("\"{}\":{{}},", i);
  }
  EXPECT_EQ(parse_plain_json(list + "{}]").size(), kElements + 1);
  EXPECT_EQ(parse_plain_json(object + "\"\":[]}").size(), kElements + 1);
}

}  // namespace
}  // namespace mpt
