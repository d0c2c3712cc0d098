// The scanner of JSON lines: texts that the library accepts and refuses, and untrusted ones beyond.
#include "core/json/json_scan.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/json/json_parse.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using nlohmann::json;

TEST(JsonScan, GivesTheValuesOfTheLibrary) {
  for (const char* text : {"null",
                           " true ",
                           "false",
                           "0",
                           "-0",
                           "-1",
                           "18446744073709551615",
                           "18446744073709551616",
                           "-9223372036854775808",
                           "-9223372036854775809",
                           "0.1",
                           "-1.5e300",
                           "1E-3",
                           "2e+2",
                           "0e0",
                           R"("")",
                           R"("a\u00e4\n\"\\\/\b\f\r\t")",
                           R"("\ud83d\uDE00")",
                           "\"\xF0\x9F\x98\x80\"",
                           R"("\u0000\u07ff\u0800\uffff")",
                           "[]",
                           "{}",
                           "[ ]",
                           "{ }",
                           R"([1,[2,{"a":[]}],"x"])",
                           "\t[\r\n1 , 2 ]\n",
                           R"({"b":{"a":[{},[null,false]],"c":""}, "a" : -0.0})",
                           R"({"a":1,"a":{"b":2}})",
                           "\xEF\xBB\xBF[1]"})
    EXPECT_EQ(parse_json_line(text), json::parse(text)) << text;
}

TEST(JsonScan, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",         " ",          "{",       "[",         "[1,]",        "[,1]",        "[1 2]",
        "{} x",     "// a\n1",    "nul",     "truex",     "01",          "1.",          ".5",
        "+1",       "-",          "1e",      "1e+",       "--1",         "0x10",        "{\"a\"}",
        "{\"a\":}", "{\"a\":1,}", "{a:1}",   "{'a':1}",   "[1}",         "{\"a\":1]",   "]",
        "\"",       "\"\\",       "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\u-123\"", "\"a\nb\"",
        "\"\t\"",   "nan",        "inf",     "-NaN",      "infinity"}) {
    EXPECT_FALSE(json::accept(text)) << text;
    EXPECT_ERROR(parse_json_line(text), "column ", ": expected ", ", found ");
  }
  EXPECT_ERROR(parse_json_line(R"({"a": 1 "b"})"),
               "column 9: expected a comma or '}', found '\"b\"}'");
  EXPECT_ERROR(parse_json_line(R"({"a": )"), "column 7: expected a value, found the end");
}

TEST(JsonScan, TakesNumbersBeyondDouble) {
  EXPECT_EQ(parse_json_line("1e999"), json(INFINITY));
  EXPECT_EQ(parse_json_line("-1e999"), json(-INFINITY));
  EXPECT_EQ(parse_json_line("[1e-999]"), json({0.0}));
  EXPECT_EQ(parse_json_line("Infinity"), json(INFINITY));
  EXPECT_EQ(parse_json_line("-Infinity"), json(-INFINITY));
  EXPECT_TRUE(std::isnan(parse_json_line("NaN").get<double>()));
}

TEST(JsonScan, HandsOnTextThatIsNotUtf8) {
  EXPECT_EQ(parse_json_line(R"("a\ud83d")"), json("a\xED\xA0\xBD"));
  EXPECT_EQ(parse_json_line(R"("\ude00\ud83d")"), json("\xED\xB8\x80\xED\xA0\xBD"));
  EXPECT_EQ(parse_json_line(R"("\ud83d\ud83d\ude00")"), json("\xED\xA0\xBD\xF0\x9F\x98\x80"));
  EXPECT_EQ(parse_json_line(R"("\ud83d\n")"), json("\xED\xA0\xBD\n"));
  EXPECT_EQ(parse_json_line("\"\xFF\""), json("\xFF"));
}

TEST(JsonScan, SaysWhatIsWrongWithAText) {
  EXPECT_EQ(defect_of_text("Caf\u00e9 😀"), "");
  EXPECT_EQ(defect_of_text("ab\xFF"), "is not UTF-8 at byte 2 (0xff)");
  EXPECT_EQ(defect_of_text("\xED"), "is not UTF-8 at byte 0 (0xed)");
  EXPECT_EQ(defect_of_text("a\xED\xA0\xBD"),
            "has half of a surrogate pair at byte 1, \\ud83d, which is no character");
}

TEST(JsonScan, TakesAnyDepth) {
  constexpr size_t kLevels = 1'000'000;
  struct Nothing final : JsonSax {
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(std::size_t) override { return true; }
    bool key(string_t&) override { return true; }
    bool end_object() override { return true; }
    bool start_array(std::size_t) override { return true; }
    bool end_array() override { return true; }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
      return true;
    }
  } events;
  scan_json(std::string(kLevels, '[') + std::string(kLevels, ']'), events);
  EXPECT_ERROR(scan_json(std::string(kLevels, '['), events), "found the end");
}

}  // namespace
}  // namespace mpt
