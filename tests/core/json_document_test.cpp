// Documents merged from files and settings: values, sources, and an Error for any text that is not
// one.
#include "core/json/json_document.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

class JsonDocumentTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = directory_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  JsonDocument load(const std::string& text) { return JsonDocument::load(write("a.json", text)); }

  test::TempDirectory directory_;
};

TEST_F(JsonDocumentTest, ReadsCommentsAndKnowsTheLineOfEveryKey) {
  const JsonDocument document = load(
      "// a file\n"
      "{ /* two\n"
      "lines */ \"a\": 1,\n"
      "  \"b\": {\n"
      "\n"
      "    \"c\": [1,\n"
      "  {\"d\": 2}], \"e\"\n"
      "    : \"x // y\" }\n"
      "}\n");
  EXPECT_EQ(document.root().dump(), R"({"a":1,"b":{"c":[1,{"d":2}],"e":"x // y"}})");
  const std::string file = directory_ / "a.json";
  EXPECT_EQ(document.source_of("a"), file + ":3");
  EXPECT_EQ(document.source_of("b"), file + ":4");
  EXPECT_EQ(document.source_of("b.c"), file + ":6");
  EXPECT_EQ(document.source_of("b.c[1].d"), file + ":7");
  EXPECT_EQ(document.source_of("b.e"), file + ":7");
  EXPECT_EQ(document.source_of("b.unknown.inner"), file + ":4");
  EXPECT_EQ(document.source_of("unknown"), file);
  EXPECT_EQ(document.source_of(""), file);
}

TEST_F(JsonDocumentTest, MergesIncludesLeftToRightWithTheFileOnTop) {
  const std::string one = write("base/one.json", R"({"s": {"x": 1, "y": 1, "l": [1, 2]}, "t": 1})");
  const std::string two =
      write("base/two.json",
            "{\"include\": [\"deep/three.json\"],\n\"s\": {\"y\": 2}, \"t\": {\"u\": 2}}");
  const std::string three = write("base/deep/three.json", R"({"s": {"y": 3, "z": 3}})");
  const JsonDocument document = load(
      "{\"include\": [\"base/one.json\", \"base/two.json\"],\n"
      "\"$schema\": \"schema.json\",\n"
      "\"s\": {\"l\": [9]}}");
  EXPECT_EQ(document.root(),
            Json::parse(R"({"s": {"x": 1, "y": 2, "l": [9], "z": 3}, "t": {"u": 2}})"));
  EXPECT_EQ(document.source_of("s.x"), one + ":1");
  EXPECT_EQ(document.source_of("s.y"), two + ":2");
  EXPECT_EQ(document.source_of("s.z"), three + ":1");
  EXPECT_EQ(document.source_of("s.l"), directory_ / "a.json:3");
  EXPECT_EQ(document.name(), directory_ / "a.json");
}

TEST_F(JsonDocumentTest, ThePieceOfTwoPiecesIsReadTwice) {
  write("base.json", R"({"x": 1})");
  write("left.json", R"({"include": ["base.json"], "y": 2})");
  write("right.json", R"({"include": ["base.json"], "z": 3})");
  EXPECT_EQ(load(R"({"include": ["left.json", "right.json"]})").root(),
            Json::parse(R"({"x":1,"y":2,"z":3})"));
}

TEST_F(JsonDocumentTest, RefusesIncludesThatLeadNowhere) {
  const std::string file = directory_ / "a.json";
  EXPECT_ERROR(load("{\n\"include\": [\"no.json\"]}"),
               file + ":2: include: ", directory_ / "no.json", "no such file");
  EXPECT_ERROR(load(R"({"include": ["a.json"]})"), file + " includes itself: ", "a.json -> ");
  write("b.json", R"({"include": ["c.json"]})");
  write("c.json", R"({"include": ["./x/../a.json"]})");
  std::filesystem::create_directories(directory_ / "x");
  EXPECT_ERROR(load(R"({"include": ["b.json"]})"), "includes itself", "b.json -> ", "c.json -> ");
  EXPECT_ERROR(load(R"({"include": ["x"]})"), file + ":1: include: ", "is a directory");
  EXPECT_ERROR(load(R"({"include": "b.json"})"),
               file + ":1: include: expected a list of file names", "\"b.json\"");
  EXPECT_ERROR(load("{\"a\": 1,\n\"include\": [1]}"),
               file + ":2: include: expected a list of file names", "[1]");
  write("e.json", "{\n\"x\": }");
  EXPECT_ERROR(load(R"({"include": ["e.json"]})"), directory_ / "e.json:2:6: ");
}

TEST_F(JsonDocumentTest, RefusesIncludesWithoutEnd) {
  for (int i = 0; i < 20; ++i)
    write(fmt::format("p{}.json", i),
          fmt::format(R"({{"include": ["p{0}.json", "p{0}.json"]}})", i + 1));
  write("p20.json", "{}");
  EXPECT_ERROR(JsonDocument::load(directory_ / "p0.json"), "more than 256 files are included");
}

TEST_F(JsonDocumentTest, RefusesWhatIsNotADocument) {
  const std::string file = directory_ / "a.json";
  EXPECT_ERROR(JsonDocument::load(directory_ / "none.json"), "none.json: no such file");
  EXPECT_ERROR(JsonDocument::load(directory_.path()), directory_.path() + ": is a directory");
  EXPECT_ERROR(JsonDocument::load("/dev/zero"), "/dev/zero: is not a regular file");
  EXPECT_ERROR(load(""), file + ": the file is empty");
  EXPECT_ERROR(load(" \n\t"), file + ": the file is empty");
  EXPECT_ERROR(load("// only a comment\n"), file + ":2:1: ", "unexpected end of input");
  EXPECT_ERROR(load("[1]"), file + ": expected an object {...}, found the list [1]");
  EXPECT_ERROR(load("{\n  \"a\": 1,\n}"), file + ":3:1: ", "unexpected '}'");
  EXPECT_ERROR(load("{\"a\": 1"), file + ":1:8: ", "unexpected end of input");
  EXPECT_ERROR(load("{\"a\": 1} x"), file + ":1:10: ", "expected end of input");
  EXPECT_ERROR(load("{\"a\": NaN}"), file + ":1:7: ");
  EXPECT_ERROR(load("{\"a\":\n 1e999}"), file + ":2:", "number overflow", "1e999");
  EXPECT_ERROR(load("{\"a\": \"\xff\"}"), file + ":1:", "invalid string");
  EXPECT_ERROR(load("{\"a\": 1 /* open"), file + ":1:", "comment");
  EXPECT_ERROR(load(std::string("{\"a\"\0: 1}", 9)), file + ":1:5: ");
  EXPECT_ERROR(load("{\"$schema\":\n 1}"), file + ":1: $schema: expected a string");
}

TEST_F(JsonDocumentTest, RefusesAKeyThatIsGivenTwice) {
  EXPECT_ERROR(load("{\"a\": {\"b\": 1,\n\"c\": 2,\n\"b\": 3}}"), "a.json:3: a.b is set twice",
               "line 1");
  EXPECT_ERROR(load("{\"a\": 1,\n\"a\": 1}"), "a.json:2: a is set twice");
}

TEST_F(JsonDocumentTest, RefusesTextsOfAbsurdSize) {
  const auto text_of = [](const std::string& value) { return fmt::format("{{\"a\": {}}}", value); };
  const auto nested = [&](int levels) {
    return text_of(std::string(levels, '[') + std::string(levels, ']'));
  };
  EXPECT_EQ(load(nested(63)).root().size(), 1u);
  EXPECT_ERROR(load(nested(64)), "a.json:1: nested deeper than 64 levels");
  EXPECT_ERROR(load(text_of(std::string(500'000, '['))), "nested deeper than 64 levels");
  EXPECT_ERROR(load(text_of(std::string(1 << 20, '1'))), "is too long for a JSON document");
  std::string keys = "{";
  for (int i = 0; i < 10'001; ++i) keys += fmt::format("\"{}\":0,", i);
  EXPECT_ERROR(load(keys + "\"last\":0}"), "more than 10000 keys");
}

// Every key keeps its path in memory: a long one around many others would take a thousand times the
// bytes of the text.
TEST_F(JsonDocumentTest, RefusesLongKeys) {
  const std::string longest(998, 'k');
  EXPECT_EQ(load(fmt::format("{{\"{}\": {{\"b\": 1}}}}", longest)).root().size(), 1u);
  EXPECT_ERROR(load(fmt::format("{{\n\"{}\": {{\"bc\": 1}}}}", longest)),
               "a.json:2: a key and those around it have 1001 bytes; at most 1000 are accepted");
}

TEST_F(JsonDocumentTest, SettingsAreJsonOrElseStrings) {
  JsonDocument document = load(R"({"a": {"x": 1, "y": 2}, "n": null})");
  document.set("a.x=2.5");
  document.set("a.t=true");
  document.set("a.s=runs/x=y");
  document.set("a.quoted=\"5\"");
  document.set("a.list=[\"p\", \"q\"]");
  document.set("a.broken=[1");
  document.set("a.huge=1e999");
  document.set("a.empty=");
  document.set("a.url=//host/path");
  document.set("n.inner.deep=null");
  document.set("new={\"k\": 1}");
  document.set("a={\"y\": 3}");
  EXPECT_EQ(
      document.root(),
      Json::parse(
          R"({"a": {"x": 2.5, "y": 3, "t": true, "s": "runs/x=y", "quoted": "5", "list": ["p", "q"],
                                  "broken": "[1", "huge": "1e999", "empty": "", "url": "//host/path"},
                            "n": {"inner": {"deep": null}}, "new": {"k": 1}})"));
  EXPECT_EQ(document.source_of("a.x"), "--set a.x=2.5");
  EXPECT_EQ(document.source_of("a.y"), "--set a={\"y\": 3}");
  EXPECT_EQ(document.source_of("n.inner.deep"), "--set n.inner.deep=null");
  EXPECT_EQ(document.source_of("new.k"), "--set new={\"k\": 1}");
}

TEST_F(JsonDocumentTest, ASettingLeavesTheSourceOfItsSection) {
  JsonDocument document = load("{\n\"a\": {\"x\": 1}}");
  document.set("a.x=2");
  EXPECT_EQ(document.source_of("a"), directory_ / "a.json:2");
  EXPECT_EQ(document.source_of("a.missing"), directory_ / "a.json:2");
}

TEST_F(JsonDocumentTest, RefusesMalformedSettings) {
  JsonDocument document = load("{\n\"a\": 1, \"l\": [1]}");
  for (const char* text : {"a.b", "", "=3", "."})
    EXPECT_ERROR(document.set(text), fmt::format("--set {}: expected key=value", text));
  for (const char* text : {"a..b=1", ".a=1", "a.=1", "..=1"})
    EXPECT_ERROR(document.set(text), fmt::format("--set {}: a key is empty", text));
  EXPECT_ERROR(document.set("a.b=1"), "--set a.b=1: a is the number 1", "a.json:2",
               "not a section");
  EXPECT_ERROR(document.set("l.0=1"), "--set l.0=1: l is the list [1]", "not a section");
  EXPECT_ERROR(document.set("include=[\"x.json\"]"), "--set include=", "only in a file");
  EXPECT_ERROR(document.set("s=\xff"), "not UTF-8");
  EXPECT_ERROR(document.set("o={\"k\":1,\"k\":2}"), "--set value", "k is set twice");
  std::string deep = "a";
  for (int i = 0; i < 64; ++i) deep += ".a";
  EXPECT_ERROR(document.set(deep + "=1"), "deeper than 64 levels");
}

TEST_F(JsonDocumentTest, AValueIsADocumentWithoutLines) {
  EXPECT_EQ(JsonDocument::of_value({{"a", 1}}, "state.json").source_of("a"), "state.json");
  EXPECT_ERROR(JsonDocument::of_value(3, "state.json"),
               "state.json: expected an object {...}, found the number 3");
}

}  // namespace
}  // namespace mpt
