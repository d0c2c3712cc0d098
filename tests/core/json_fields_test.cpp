// Every kind of field, read, refused, written and described from one list.
#include <fstream>

#include <gtest/gtest.h>

#include "core/json/config_fields.h"
#include "core/json/config_reader.h"
#include "core/json/config_writer.h"
#include "core/text/suggestion.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"

namespace mpt {
enum class Colour : uint8_t { kRed, kGreen };
template <>
struct EnumNames<Colour> {
  static constexpr std::array<std::string_view, 2> kNames{"red", "green"};
};

namespace {

struct Inner {
  int64_t depth = 3;
  Colour colour = Colour::kRed;
  double green_share = 0.5;
  double green_need = 0;

  bool operator==(const Inner&) const = default;

  void fields(Fields& f) {
    f.optional("depth", depth, {.minimum = -2, .maximum = 10, .doc = "how deep"});
    f.optional("colour", colour, {.doc = "which colour"});
    const Condition green = only_with("colour", colour, {Colour::kGreen});
    f.optional("green_share", green_share,
               {.minimum = 0, .exclusive_maximum = 1, .only_with = green});
    f.required("green_need", green_need,
               {.exclusive_minimum = 0, .only_with = green, .doc = "what green needs"});
  }
};

// Two shapes, one of which is chosen; both have a color.
struct Circle {
  static constexpr std::string_view kName = "circle";
  double radius = 0;
  Colour colour = Colour::kRed;

  bool operator==(const Circle&) const = default;

  void fields(Fields& f) {
    f.required("radius", radius, {.exclusive_minimum = 0, .doc = "half its width"});
    f.optional("colour", colour, {.doc = "of the line"});
  }
};
struct Square {
  static constexpr std::string_view kName = "square";
  double side = 1;
  Colour colour = Colour::kGreen;

  bool operator==(const Square&) const = default;

  void fields(Fields& f) {
    f.optional("side", side, {.doc = "its width"});
    f.optional("colour", colour, {.doc = "of the line"});
  }
};
struct Drawing {
  ChoiceOf<Circle, Square> shape{};
  bool filled = false;

  bool operator==(const Drawing&) const = default;

  void fields(Fields& f) {
    f.choice("shape", shape, {.doc = "what is drawn"});
    f.optional("filled", filled, {.doc = "or a line"});
  }
};

Drawing drawing(JsonDocument document, LeftOut* left_out = nullptr) {
  Drawing result;
  Problems problems;
  read_fields(document, Fields::of(result), problems, {}, left_out);
  throw_problems(problems);
  return result;
}
Drawing drawing(const std::string& text) {
  return drawing(JsonDocument::of_value(parse_json(text, "f").value, "f"));
}

struct Outer {
  bool flag = false;
  uint64_t seed = 7;
  std::string title{};
  std::vector<std::string> names{"a"};
  std::optional<int64_t> steps{};
  std::optional<double> share{};
  Inner inner{};

  bool operator==(const Outer&) const = default;

  void fields(Fields& f) {
    f.optional("flag", flag, {.doc = "a flag"});
    f.optional("seed", seed);
    f.required("title", title, {.doc = "a title"});
    f.optional("names", names);
    f.optional("steps", steps, {.minimum = 1});
    f.optional("share", share);
    f.section("inner", inner, "the inner one");
  }
};

Outer read(const std::string& text) {
  Outer result;
  Problems problems;
  read_fields(JsonDocument::of_value(parse_json(text, "f").value, "f"), Fields::of(result),
              problems);
  throw_problems(problems);
  return result;
}

// A document whose only error is the given text.
Outer with(const std::string& text) { return read("{\"title\": \"t\", " + text + "}"); }
Outer inside(const std::string& text) { return with("\"inner\": {" + text + "}"); }

TEST(JsonFields, DefaultsStandWhereNothingIsGiven) {
  EXPECT_EQ(read(R"({"title": "t"})"), Outer{.title = "t"});
  EXPECT_EQ(read(R"({"title": "t", "flag": null, "steps": null, "inner": null})"),
            Outer{.title = "t"});
}

TEST(JsonFields, ReadsEveryType) {
  const Outer all =
      read(R"({"flag": true, "seed": 18446744073709551615, "title": "x", "names": [], "steps": 2,
                             "share": 3, "inner": {"depth": -2, "colour": "green", "green_share": 0, "green_need": 1}})");
  const Inner inner{.depth = -2, .colour = Colour::kGreen, .green_share = 0, .green_need = 1};
  EXPECT_EQ(all, (Outer{true, UINT64_MAX, "x", {}, 2, 3.0, inner}));
  EXPECT_EQ(with(R"("names": "one")").names, std::vector<std::string>{"one"});
}

TEST(JsonFields, AnIntegerMayBeWrittenAsAnIntegralNumber) {
  EXPECT_EQ(with(R"("steps": 1e6)").steps, 1'000'000);
  EXPECT_EQ(with(R"("steps": 131072.0)").steps, 131'072);
  EXPECT_EQ(with(R"("steps": 9007199254740993)").steps, 9'007'199'254'740'993);
  EXPECT_EQ(with(R"("seed": 1e3)").seed, 1000u);
  EXPECT_ERROR(with(R"("steps": 1.5)"), "f: steps: expected an integer, found the number 1.5");
  EXPECT_ERROR(with(R"("steps": 1e300)"), "steps: must be an integer of at most 64 bits");
  EXPECT_ERROR(with(R"("steps": 9223372036854775808)"),
               "steps: must be an integer of at most 64 bits");
}

TEST(JsonFields, RefusesWrongTypes) {
  EXPECT_ERROR(with(R"("flag": 1)"), "f: flag: expected true or false, found the number 1");
  EXPECT_ERROR(with(R"("flag": "true")"),
               "flag: expected true or false, found the string \"true\"");
  EXPECT_ERROR(with(R"("seed": -1)"),
               "seed: must be at least 0 and less than 2^64, found the number -1");
  EXPECT_ERROR(with(R"("seed": 18446744073709551616)"),
               "seed: must be at least 0 and less than 2^64");
  EXPECT_ERROR(with(R"("seed": true)"), "seed: expected an integer, found the boolean true");
  EXPECT_ERROR(read(R"({"title": 5})"), "title: expected a string, found the number 5");
  EXPECT_ERROR(read(R"({"title": "a\u0000b"})"), "title: control characters are not accepted");
  EXPECT_ERROR(with(R"("names": ["a", 1])"),
               "names: expected a list of strings, found the list [\"a\",1]");
  EXPECT_ERROR(with(R"("names": {"a": 1})"), "names: expected a list of strings, found the object");
  EXPECT_ERROR(with(R"("share": "x")"), "share: expected a number, found the string \"x\"");
  EXPECT_ERROR(with(R"("inner": 3)"), "inner: expected a section {...}, found the number 3");
  EXPECT_ERROR(inside(R"("colour": "gren")"),
               "inner.colour: expected one of red, green; found the string \"gren\"");
  EXPECT_ERROR(inside(R"("colour": 0)"),
               "inner.colour: expected one of red, green; found the number 0");
}

TEST(JsonFields, RefusesValuesOutOfRangeAndTakesTheBounds) {
  EXPECT_EQ(inside(R"("depth": 10)").inner.depth, 10);
  EXPECT_ERROR(inside(R"("depth": 11)"),
               "inner.depth: must be at least -2 and at most 10, found 11");
  EXPECT_ERROR(inside(R"("depth": -3)"),
               "inner.depth: must be at least -2 and at most 10, found -3");
  EXPECT_ERROR(inside(R"("colour": "green", "green_need": 0)"),
               "green_need: must be greater than 0, found 0");
  EXPECT_ERROR(inside(R"("colour": "green", "green_need": 1, "green_share": 1)"),
               "green_share: must be at least 0 and less than 1, found 1");
}

TEST(JsonFields, UnknownKeysNameTheNearest) {
  EXPECT_ERROR(with(R"("sed": 1)"), "f: sed: unknown key; did you mean \"seed\"?");
  EXPECT_ERROR(inside(R"("dpeth": 1)"), "f: inner.dpeth: unknown key; did you mean \"depth\"?");
  EXPECT_ERROR(with(R"("colour": "red")"), "colour: unknown key; did you mean \"inner.colour\"?");
  EXPECT_ERROR(inside(R"("title": "t")"), "inner.title: unknown key; did you mean \"title\"?");
  EXPECT_ERROR(inside(R"("zzzzzz": null)"),
               "unknown key; valid keys here: depth, colour, green_share, green_need");
}

TEST(JsonFields, MissingKeysSayWhatTheyAre) {
  EXPECT_ERROR(read("{}"), "f: title: missing; it is required (a title)");
  EXPECT_ERROR(read(R"({"title": null})"), "f: title: missing; it is required (a title)");
  EXPECT_ERROR(
      inside(R"("colour": "green")"),
      "inner.green_need: missing; it is required by inner.colour = green (what green needs)");
}

TEST(JsonFields, KeysWithoutMeaningAreRefused) {
  EXPECT_ERROR(inside(R"("green_share": 0.1)"), "inner.green_share: requires inner.colour = green",
               "inner.colour is red");
  EXPECT_EQ(inside(R"("green_share": null)"), Outer{.title = "t"});
}

TEST(JsonFields, AllProblemsAreListedOnce) {
  Outer result;
  Problems problems;
  read_fields(JsonDocument::of_value(
                  {{"flag", 1}, {"inner", {{"colour", "x"}, {"green_share", 0.1}}}}, "f"),
              Fields::of(result), problems);
  ASSERT_EQ(problems.size(), 3u);  // no errors follow from an unknown color
  EXPECT_NE(problems[0].find("flag"), std::string::npos);
  EXPECT_NE(problems[1].find("title"), std::string::npos);
  EXPECT_NE(problems[2].find("inner.colour"), std::string::npos);
  EXPECT_ERROR(throw_problems(Problems(23, "p")), "p\n", "and 3 more");
}

TEST(JsonFields, WhatIsWrittenReadsBackEqual) {
  const Inner green{.depth = 1, .colour = Colour::kGreen, .green_share = 0.1, .green_need = 1e-7};
  for (const Outer& outer :
       {Outer{.title = "t"}, Outer{true, UINT64_MAX, "\"x\"\u00e9", {"a", "b"}, 5, 1.0 / 3, green}})
    EXPECT_EQ(read(write_fields(outer).dump()), outer);
}

TEST(JsonFields, WritesOnlyWhatHasAMeaning) {
  const Json json = write_fields(Outer{.title = "t"});
  EXPECT_EQ(
      json.dump(),
      R"({"flag":false,"seed":7,"title":"t","names":["a"],"inner":{"depth":3,"colour":"red"}})");
}

TEST(JsonFields, TheSchemaDescribesEveryKey) {
  const Json schema = schema_of_fields(Outer{});
  EXPECT_EQ(schema["additionalProperties"], false);
  const Json& fields = schema["properties"];
  EXPECT_EQ(fields.size(), 7u);
  EXPECT_EQ(fields["title"],
            Json::parse(R"({"description": "Required. a title", "type": ["string", "null"]})"));
  EXPECT_EQ(fields["flag"]["default"], false);
  EXPECT_FALSE(fields["steps"].contains("default"));
  const Json& inner = fields["inner"]["properties"];
  EXPECT_EQ(inner["depth"],
            Json::parse(R"({"description": "how deep", "type": ["integer", "null"], "minimum": -2,
                                            "maximum": 10, "default": 3})"));
  EXPECT_EQ(inner["colour"]["enum"], Json::parse(R"(["red", "green", null])"));
  EXPECT_EQ(inner["green_need"]["description"], "Required with colour = green. what green needs");
  EXPECT_EQ(inner["green_need"]["exclusiveMinimum"], 0);
}

TEST(JsonFields, AChoiceBringsItsKeys) {
  EXPECT_EQ(drawing(R"({"shape": "circle", "radius": 2})"), (Drawing{Circle{2}}));
  EXPECT_EQ(drawing(R"({"shape": "square", "filled": true, "colour": "red"})"),
            (Drawing{Square{1, Colour::kRed}, true}));
  for (const Drawing& d : {Drawing{Circle{2}}, Drawing{Square{3, Colour::kRed}, true}})
    EXPECT_EQ(drawing(write_fields(d).dump()), d);
}

TEST(JsonFields, AChoiceIsCheckedLikeOtherKeys) {
  EXPECT_ERROR(drawing("{}"), "f: shape: missing; it is required (what is drawn)");
  EXPECT_ERROR(drawing(R"({"shape": "circel"})"),
               "f: shape: expected one of circle, square; found the string \"circel\"; did you "
               "mean \"circle\"?");
  EXPECT_ERROR(drawing(R"({"shape": 1})"),
               "f: shape: expected one of circle, square; found the number 1");
  EXPECT_ERROR(drawing(R"({"shape": "circle"})"),
               "f: radius: missing; it is required by shape = circle (half its width)");
  EXPECT_ERROR(drawing(R"({"shape": "square", "radius": 1})"),
               "f: radius: requires shape = circle, but shape is square");
  EXPECT_ERROR(drawing(R"({"shape": "square", "sides": 1})"),
               "f: sides: unknown key; did you mean \"side\"?");
  EXPECT_EQ(drawing(R"({"shape": "square", "radius": null})"), (Drawing{Square{}}));
}

// A key written below this choice, for another one, is dropped; a key written above it is refused.
TEST(JsonFields, AnotherChoiceAboveLeavesKeysOut) {
  const test::TempDirectory directory;
  const std::string base = directory.path() + "/base.json", mine = directory.path() + "/mine.json";
  std::ofstream(base) << R"({"shape": "circle", "radius": 2, "colour": "green"})";
  std::ofstream(mine) << R"({"include": ["base.json"], "shape": "square"})";
  LeftOut left_out;
  EXPECT_EQ(drawing(JsonDocument::load(mine), &left_out), (Drawing{Square{}}));
  EXPECT_EQ(left_out, LeftOut{fmt::format("radius ({}:1)", base)});
  EXPECT_ERROR(drawing(JsonDocument::load(mine)), "radius: requires shape = circle");

  left_out.clear();
  JsonDocument set = JsonDocument::load(base);
  set.set("shape=square");
  EXPECT_EQ(drawing(set, &left_out), (Drawing{Square{}}));
  EXPECT_EQ(left_out.size(), 1u);
  set.set("radius=3");
  EXPECT_ERROR(drawing(set, &left_out), "--set radius=3: radius: requires shape = circle",
               "but shape is square (--set shape=square)");
}

// Keys that once had another name.
struct Ink {
  static constexpr std::string_view kName = "ink";
  Colour colour = Colour::kRed;

  void fields(Fields& f) { f.required("colour", colour, {.doc = "of the ink", .former = "tint"}); }
};
struct Pen {
  double width = 1;
  std::optional<int64_t> nibs{};
  ChoiceOf<Ink> fill{};

  void fields(Fields& f) {
    f.optional("width", width, {.minimum = 0, .doc = "of a line", .former = "thickness"});
    f.optional("nibs", nibs, {.former = "points"});
    f.choice("fill", fill);
  }
};
struct Desk {
  Pen pen{};

  void fields(Fields& f) { f.section("pen", pen, "what writes"); }
};
struct Box {
  std::vector<Pen> pens{};

  void fields(Fields& f) { f.required("pens", pens); }
};

Desk desk(JsonDocument document) {
  Desk result;
  Problems problems;
  use_present_names(document, Fields::of(result));
  read_fields(document, Fields::of(result), problems);
  throw_problems(problems);
  return result;
}
Desk desk(const std::string& pen) {
  const std::string text = fmt::format(R"({{"pen": {{"fill": "ink", {}}}}})", pen);
  return desk(JsonDocument::of_value(parse_json(text, "f").value, "f"));
}

TEST(JsonFields, FormerNamesAreRead) {
  const Desk read = desk(R"("thickness": 2, "points": 3, "tint": "green")");
  EXPECT_EQ(read.pen.width, 2);
  EXPECT_EQ(read.pen.nibs, 3);
  EXPECT_EQ(std::get<0>(read.pen.fill.value).colour, Colour::kGreen);
  EXPECT_EQ(write_fields(read).dump(),
            R"({"pen":{"width":2.0,"nibs":3,"fill":"ink","colour":"green"}})");
  EXPECT_ERROR(
      desk(R"("thickness": 2, "width": 1, "tint": "red")"),
      "f: pen.thickness is a former name of pen.width, which f also sets; remove one of them");
  EXPECT_NO_THROW(
      desk(JsonDocument::of_value(Json::parse(R"({"pen": {"fill": "ink", "tint": "red"}})"), "f")));
  EXPECT_ERROR(desk(JsonDocument::of_value(Json::parse(R"({"pen": 1})"), "f")),
               "f: pen: expected a section");
}

TEST(JsonFields, FormerNamesAreReadInLists) {
  JsonDocument document =
      JsonDocument::of_value(Json::parse(R"({"pens": [{"fill": "ink", "colour": "red", "width": 1},
                               {"fill": "ink", "tint": "green", "thickness": 4}]})"),
                             "f");
  Box box;
  Problems problems;
  use_present_names(document, Fields::of(box));
  read_fields(document, Fields::of(box), problems);
  throw_problems(problems);
  ASSERT_EQ(box.pens.size(), 2u);
  EXPECT_EQ(box.pens[0].width, 1);
  EXPECT_EQ(box.pens[1].width, 4);
  EXPECT_EQ(std::get<0>(box.pens[1].fill.value).colour, Colour::kGreen);
}

// Under either name, the value written above counts; messages name its place.
TEST(JsonFields, FormerNamesMergeWithPresentOnes) {
  const test::TempDirectory directory;
  const std::string base = directory.path() + "/base.json", mine = directory.path() + "/mine.json";
  std::ofstream(base) << R"({"pen": {"fill": "ink", "colour": "red", "thickness": 2, "nibs": 1}})";
  std::ofstream(mine) << R"({"include": ["base.json"], "pen": {"width": 3, "points": null}})";
  const Desk read = desk(JsonDocument::load(mine));
  EXPECT_EQ(read.pen.width, 3);
  EXPECT_EQ(read.pen.nibs, std::nullopt);

  JsonDocument set = JsonDocument::load(mine);
  set.set("pen.thickness=4");
  EXPECT_EQ(desk(set).pen.width, 4);
  set.set("pen.thickness=-1");
  EXPECT_ERROR(desk(set),
               "--set pen.thickness=-1 (as thickness): pen.width: must be at least 0, found -1");

  std::ofstream(mine) << R"({"include": ["base.json"], "pen": {
    "width": 3,
    "thickness": 4}})";
  EXPECT_ERROR(
      desk(JsonDocument::load(mine)),
      fmt::format("{}:3: pen.thickness is a former name of pen.width, which {}:2 also sets", mine,
                  mine));
}

TEST(JsonFields, TheSchemaKnowsFormerNames) {
  const Json fields = schema_of_fields(Pen{})["properties"];
  EXPECT_EQ(fields["thickness"], Json::parse(R"({"description": "Former name of width.",
                                                 "type": ["number", "null"], "minimum": 0, "deprecated": true})"));
  EXPECT_EQ(fields["tint"]["enum"], fields["colour"]["enum"]);
}

TEST(JsonFields, TheSchemaMergesTheKeysOfAChoice) {
  const Json fields = schema_of_fields(Drawing{})["properties"];
  EXPECT_EQ(fields.size(), 5u);
  EXPECT_EQ(fields["shape"]["enum"], Json::parse(R"(["circle", "square", null])"));
  EXPECT_EQ(fields["shape"]["description"], "Required. what is drawn");
  EXPECT_EQ(fields["radius"]["description"], "Required with shape = circle. half its width");
  EXPECT_EQ(fields["side"]["description"], "Only with shape = square. its width");
  EXPECT_EQ(fields["side"]["default"], 1.0);
  EXPECT_EQ(fields["colour"]["description"], "of the line");
  EXPECT_FALSE(fields["colour"].contains("default"));  // another one for each
}

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("beta", "btea"), 1);
  EXPECT_EQ(edit_distance("ab", "ab"), 0);
}

TEST(NearestName, IsNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest_name("bata1", {"beta2", "beta1"}), "beta1");
  EXPECT_EQ(nearest_name("epz", {"eps"}), "eps");
  EXPECT_EQ(nearest_name("x", {"y"}), "y");
  EXPECT_EQ(nearest_name("x", {"depth"}), std::nullopt);
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), {std::string(100'000, 'x')}), std::nullopt);
}

}  // namespace
}  // namespace mpt
