// Records of runs, and the page about them.
#include "watch/run_page.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/check.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/temp_directory.h"
#include "watch/chart.h"

namespace mpt::test {
namespace {

void write(const std::string& path, const std::string& text) {
  disk.create(path)->append(bytes_of(text));
}

RecordedCurve curve(int64_t steps, double (*value)(int64_t)) {
  RecordedCurve points;
  for (int64_t step = 1; step <= steps; ++step) points.push_back({step, value(step)});
  return points;
}

RunRecords run_of(const std::string& name, RecordedCurve losses, int64_t planned) {
  RunRecords run;
  run.name = name;
  run.steps = run.last_step = losses.back().step;
  run.curves["train/loss"] = std::move(losses);
  run.config = {{"name", name}, {"train", {{"steps", planned}}}};
  return run;
}

double falling(int64_t step) { return 3 + 5 * std::exp(-double(step) / 100); }

// Expects the same result as scripts/mpretrain_tools/runs/metrics.py.
TEST(RunRecords, WhatCountsOfARunThatWentBack) {
  const TempDirectory directory;
  write(
      directory / "metrics.jsonl",
      "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3.5, \"val_loss\": 3}\n"
      "{\"step\": 3, \"lo{\"event\": \"resume\", \"step\": 1}\n"
      "{\"event\": \"resume\", \"step\": 1}\n\n{\"step\": 2, \"loss\": null}\n"
      "{\"event\": \"resume\", \"step\": 2, \"reason\": \"rollback from step 3\"}\n"
      "{\"event\": \"resume\", \"step\": 2, \"reason\": \"phase 2 begins\"}\n"
      "[1]\n{\"step\": \"x\"}\n{\"step\": 3, \"loss\": 2, \"validation\": 7}\n{\"step\": 4, \"lo");
  const RunRecords run = read_run(disk, directory.path());
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.last_step, 3);
  EXPECT_EQ(run.torn_lines, 2);
  EXPECT_EQ(run.resumed, 1);
  EXPECT_EQ(run.rolled_back, 1);
  EXPECT_TRUE(run.curves.at("validation/loss").empty());
  const RecordedCurve& losses = run.curves.at("train/loss");
  ASSERT_GE(losses.size(), 2u);
  EXPECT_EQ(losses[0].value, 4);
  EXPECT_TRUE(std::isnan(losses[1].value));
  EXPECT_TRUE(run.config.is_null());
}

// Even if the run later went beyond those steps.
TEST(RunRecords, SamplesOfStepsThatWereGoneBackOver) {
  const TempDirectory directory;
  write(directory / "metrics.jsonl", "{\"step\": 1, \"loss\": 4}\n{\"step\": 9, \"loss\": 3}\n");
  write(directory / "samples.jsonl",
        R"({"step": 2, "samples": [{"prompt": "a", "text": "stays"}]}
{"step": 5, "samples": [{"prompt": "a", "text": "goes"}]}
{"event": "resume", "step": 2}
{"step": 6, "samples": [{"prompt": "a", "text": "comes"}]}
)");
  const RunRecords run = read_run(disk, directory.path());
  ASSERT_EQ(run.samples.size(), 2u);
  EXPECT_TRUE(run.samples.contains(2) && run.samples.contains(6));
}

// For a step sampled twice the last texts count; those of steps that the run went back over are
// dropped.
TEST(RunRecords, Samples) {
  const TempDirectory directory;
  write(directory / "metrics.jsonl", "{\"step\": 1, \"loss\": 4}\n{\"step\": 4, \"loss\": 3}\n");
  write(directory / "samples.jsonl",
        R"({"step": 2, "samples": [{"prompt": "a", "text": "old"}]}
{"step": 2, "samples": [{"prompt": "a", "text": "<i>new"}, {"prompt": ""}]}
{"step": 3, "samples": 7}
{"step": 6, "samples": [{"prompt": "a", "text": "beyond"}]}
{"step": 4, "sam)");
  const RunRecords run = read_run(disk, directory.path());
  ASSERT_EQ(run.samples.size(), 1u);
  ASSERT_EQ(run.samples.at(2).size(), 2u);
  EXPECT_EQ(run.samples.at(2)[0].text, "<i>new");
  const std::string page = run_page({run});
  EXPECT_TRUE(has(page, "<td class=n>2<td>a<td><pre>&lt;i&gt;new</pre>"));
  EXPECT_FALSE(has(run_page({run_of("b", {{1, 1.0}}, 1)}), "Samples"));
}

TEST(RunPage, TheLastSamplesAndSomeBefore) {
  RunRecords run = run_of("a", curve(1000, falling), 1000);
  for (int64_t step = 1; step <= 1000; ++step)
    run.samples[step] = {{"p", fmt::format("t{}.", step)}};
  const std::string page = run_page({run});
  EXPECT_EQ(count(page, "<pre>t"), 8);
  EXPECT_TRUE(has(page, "<pre>t1000.</pre>"));
  EXPECT_TRUE(has(page, "<pre>t1.</pre>"));
}

TEST(RunRecords, LinesThatNoRunWritesEndTheReadingOfNone) {
  const TempDirectory directory;
  const std::string deep =
      std::string(300'000, '[') + std::string(300'000, ']');  // too deep to be copied or freed
  std::string keys = "{\"step\": 2";
  for (int i = 0; i < 300'000; ++i) keys += fmt::format(", \"{}\": 0", i);
  write(directory / "metrics.jsonl", "{\"step\": 1, \"event\": \"resume\", \"reason\": " + deep +
                                         "}\n" + keys + "}\n{\"step\": 3, \"loss\": 2}\n");
  write(directory / "samples.jsonl", "{\"step\": 1, \"event\": " + deep + "}\n");
  const RunRecords run = read_run(disk, directory.path());
  EXPECT_EQ(run.torn_lines, 1);
  EXPECT_EQ(run.steps, 2);
  EXPECT_EQ(run.curves.at("train/299999").size(), 1u);
}

// A line that goes back without a return counts at its step; the last one counts for each step.
// Quadratic time in the lines would be hours.
TEST(RunRecords, LinesInAnyOrderTakeTimeInProportionToTheirNumber) {
  const TempDirectory directory;
  constexpr int64_t kLines = 400'000;
  std::string descending, returns;
  for (int64_t i = 0; i < kLines; ++i) {
    descending += fmt::format("{{\"step\":{},\"loss\":1}}\n", kLines - i);
    returns +=
        fmt::format("{{\"step\":{0},\"k{0}\":1}}\n{{\"step\":{0},\"event\":\"resume\"}}\n", i + 1);
  }
  write(directory / "metrics.jsonl", descending + "{\"step\":2,\"loss\":3}\n");
  const RunRecords run = read_run(disk, directory.path());
  EXPECT_EQ(run.steps, kLines);
  EXPECT_EQ(run.curves.at("train/loss")[0].value, 1);
  EXPECT_EQ(run.curves.at("train/loss")[1].value, 3);
  EXPECT_EQ(run.curves.at("train/loss").back().step, kLines);
  const TempDirectory other;
  write(other / "metrics.jsonl", returns);
  EXPECT_EQ(read_run(disk, other.path()).curves.size(), size_t(kLines));
}

// A page spells out the path of every value of a config.
TEST(RunRecords, ConfigsOfAbsurdSizeAreRefused) {
  const TempDirectory directory;
  write(directory / "metrics.jsonl", "{\"step\":1}\n");
  const auto refused = [&](const std::string& config, const std::string& says) {
    write(directory / "config.json", config);
    EXPECT_ERROR(read_run(disk, directory.path()), "config.json", says);
  };
  std::string list = "{\"a\":[1";
  for (int i = 0; i < 10'000; ++i) list += ",1";
  refused(list + "]}", "10001 values; at most 10000");
  refused("{\"" + std::string(2000, 'k') + "\":1}", "2000 bytes; at most 1000");
}

TEST(RunRecords, NoRun) {
  const TempDirectory directory;
  const auto message = [&](const std::string& path) {
    try {
      read_run(disk, path);
    } catch (const Error& problem) {
      return std::string(problem.what());
    }
    return std::string();
  };
  EXPECT_TRUE(has(message(directory.path()), "no metrics.jsonl in it"));
  EXPECT_TRUE(has(message(directory / "missing"), "expected the directory of a run"));
  write(directory / "metrics.jsonl", "{}\n");
  EXPECT_TRUE(has(message(directory.path()), "no step is recorded in it"));
  write(directory / "metrics.jsonl", "{\"step\": 1, \"loss\": 4}\n");
  write(directory / "config.json", std::string(100'000, '['));
  EXPECT_TRUE(has(message(directory.path()), "config.json"));
}

TEST(RunRecords, RunsOfOneNameAreToldApart) {
  std::vector<RunRecords> runs(3);
  runs[0].name = runs[2].name = "a";
  runs[1].name = "b";
  name_apart(runs, {"x/a", "x/b", "y/a"});
  EXPECT_EQ(runs[0].name, "x/a");
  EXPECT_EQ(runs[1].name, "b");
  EXPECT_EQ(runs[2].name, "y/a");
}

TEST(RunPage, HowRunsEnded) {
  EXPECT_EQ(state_of(run_of("a", curve(500, falling), 500)), RunOutcome::kComplete);
  EXPECT_EQ(state_of(run_of("a", curve(500, falling), 900)), RunOutcome::kUnfinished);
  const auto rising = [](int64_t step) { return step < 300 ? falling(step) : 7.0; };
  EXPECT_EQ(state_of(run_of("a", curve(500, rising), 500)), RunOutcome::kDiverged);
  const auto lost = [](int64_t step) { return step < 499 ? falling(step) : NAN; };
  EXPECT_EQ(state_of(run_of("a", curve(500, lost), 900)), RunOutcome::kNotFinite);
  EXPECT_EQ(state_of(run_of("a", {{1, 9.0}}, 1)), RunOutcome::kComplete);
}

TEST(RunPage, TextOfFilesIsEscaped) {
  const std::string hostile = "</title><script>alert('1')</script>\"&\x01\xff";
  RunRecords run = run_of(hostile, curve(3, falling), 3);
  run.curves["validation/" + hostile + "/loss"] = {{3, 1}};
  run.config[hostile] = hostile.substr(0, 20);
  run.report = {{"device", hostile}, {"plan", {{"allocated_bytes", {{hostile, 1}}}}}};
  for (const std::string& page : {run_page({run}), run_page({run, run_of("b", {{1, 1.0}}, 1)})}) {
    EXPECT_FALSE(has(page, "<script"));
    EXPECT_FALSE(has(page, "\x01"));
    EXPECT_FALSE(has(page, "\xff"));
    EXPECT_TRUE(
        has(page, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\uFFFD\uFFFD"));
    EXPECT_EQ(count(page, "</title></head>"), 1);
    EXPECT_FALSE(has(page, "http"));
    EXPECT_FALSE(has(page, "src="));
  }
}

TEST(RunPage, SmallHoweverLongAndMany) {
  std::vector<RunRecords> runs;
  for (size_t i = 0; i < kMostPageRuns; ++i) {
    RunRecords run = run_of(std::string(3000, '"'), curve(3000, falling), 3000);
    for (const char* tag : {"train/lr", "train/grad_norm", "train/tokens_per_second"})
      run.curves[tag] = run.curves["train/loss"];
    for (int64_t set = 0; set < 100; ++set)
      run.curves[fmt::format("validation/{}/loss", set)] = run.curves["train/loss"];
    for (int64_t key = 0; key < 300; ++key)
      run.config[fmt::format("key{}", key)] = std::string(100, "\"<"[i % 2]);
    for (int64_t step = 0; step < 100; ++step)
      run.samples[step].assign(20, {std::string(3000, '"'), std::string(9000, '"')});
    runs.push_back(std::move(run));
  }
  const std::string page = run_page(runs);
  EXPECT_LT(int64_t(page.size()), kMostPageBytes);
  EXPECT_TRUE(has(page, "24 of 101 validation losses are shown"));
  runs.push_back(runs.front());
  EXPECT_THROW(run_page(runs), Error);
  EXPECT_LT(int64_t(run_page({run_of("long", curve(1'000'000, falling), 1)}).size()), 200'000);
}

TEST(RunPage, WhatDiffers) {
  RunRecords a = run_of("a", {{1, 1.0}}, 1), b = run_of("b", {{1, 1.0}}, 1);
  a.config["optimizer"]["lr"] = 0.5;
  a.config["seed"] = b.config["seed"] = 7;
  b.config["name"] = "a";
  const std::string page = run_page({a, b});
  EXPECT_TRUE(has(page, "<code>optimizer.lr</code></td><td><code>0.5</code></td><td><code>–<"));
  EXPECT_FALSE(has(page, "<code>seed</code>"));
  EXPECT_FALSE(has(page, "<code>name</code>"));
  EXPECT_TRUE(has(run_page({a, a}), "the configurations are the same"));
}

// The band reaches the extremes of a span, and values that are not finite have a mark.
TEST(Chart, KeepsExtremesAndMarks) {
  RecordedCurve points = curve(10'000, [](int64_t) { return 1.0; });
  points[5000].value = 2;
  points[7000].value = NAN;
  const std::string svg = chart_svg({"t", "u", {{"a", &points, 0}}}, 100);
  EXPECT_EQ(count(svg, "class=\"band"), 1);
  EXPECT_EQ(count(svg, "class=mark"), 1);
  EXPECT_TRUE(has(svg, "cut off; the largest is 2<") || has(svg, ">2<")) << svg;
  EXPECT_LT(svg.size(), 8000u);
}

TEST(Chart, AnyValuesEnd) {
  for (const RecordedCurve& points :
       {RecordedCurve{}, RecordedCurve{{1, NAN}}, RecordedCurve{{1, 1e308}, {2, -1e308}},
        RecordedCurve{{1, 1e17}, {2, 1e17 + 16}}, RecordedCurve{{1, 5e-324}, {2, 0}},
        RecordedCurve{{INT64_MIN, 0}, {INT64_MAX, 1e299}},
        RecordedCurve{{1, -1e299}, {2, 1e299}}}) {
    const std::string svg = chart_svg({"t", "u", {{"a", &points, 0}}}, 10);
    EXPECT_TRUE(svg.ends_with("</svg>"));
    EXPECT_FALSE(has(svg, "nan")) << svg;
    EXPECT_LT(svg.size(), 8000u);
  }
}

TEST(Chart, Numbers) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(12'500), "12.5k");
  EXPECT_EQ(short_number(-3e6), "-3M");
  EXPECT_EQ(short_number(3.1e-5), "3.1e-05");
}

}  // namespace
}  // namespace mpt::test
