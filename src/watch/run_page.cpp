#include "watch/run_page.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/units.h"
#include "watch/chart.h"
#include "watch/page_style.h"

namespace mpt {
namespace {

using nlohmann::json;
using PageRuns = std::vector<RunRecords>;

// Bytes of curves, the table of differences, whole configurations, and samples.
constexpr int64_t kCurveBytes = 800'000, kDifferenceBytes = 200'000, kConfigBytes = 300'000,
                  kSampleBytes = 200'000;
constexpr int64_t kMostNameBytes = 200, kMostLabelBytes = 60;
constexpr size_t kMostValidationSets = 24;

constexpr int64_t kColors = 8;

// Returns rules for each color of a curve and the run's mark; runs past the last color are dashed.
std::string color_rules() {
  std::string css;
  for (int64_t i = 0; i < int64_t(kMostPageRuns); ++i) {
    const int64_t dash = i / kColors;
    css +=
        fmt::format(".c{0}{{--own:var(--c{1});stroke:var(--c{1}){2}}}", i, i % kColors,
                    dash > 0 ? fmt::format(";stroke-dasharray:{} {}", 2 + 3 * dash, 2 + dash) : "");
    css += fmt::format(".band.c{0},.dot.c{0}{{fill:var(--c{1})}}", i, i % kColors);
  }
  return css;
}

// Returns the escaped text, truncated to at most `most` bytes.
std::string short_html(std::string_view text, int64_t most) {
  std::string html = html_text(text.substr(0, size_t(most)));
  if (int64_t(html.size()) <= most && int64_t(text.size()) <= most) return html;
  size_t kept = std::min(text.size(), size_t(most));
  while (kept > 0 && int64_t(html.size()) > most - 3) {
    kept = kept * 3 / 4;
    while (kept > 0 && (uint8_t(text[kept]) & 0xc0) == 0x80) --kept;  // between characters
    html = html_text(text.substr(0, kept));
  }
  return html + "…";
}

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return json_text(value);
}

// Returns a nested value, or null.
json inside(const json& object, std::initializer_list<const char*> keys) {
  const json* at = &object;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return *at;
}

const RecordedCurve* curve_of(const RunRecords& run, const std::string& tag) {
  const auto found = run.curves.find(tag);
  return found == run.curves.end() || found->second.empty() ? nullptr : &found->second;
}

std::string number_or_dash(double value, const char* format = "{:.4f}") {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "–";
}

double lowest(const RecordedCurve* curve) {
  double least = INFINITY;
  if (curve != nullptr)
    for (const RecordedPoint& point : *curve)
      if (point.value < least) least = point.value;
  return least;
}

double median(const RecordedCurve* curve) {
  std::vector<double> values;
  if (curve != nullptr)
    for (const RecordedPoint& point : *curve)
      if (std::isfinite(point.value)) values.push_back(point.value);
  if (values.empty()) return NAN;
  const auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// --- outcomes ------------------------------------------------------------------------------------

// Returns 0 if unknown.
int64_t planned_steps(const RunRecords& run) {
  for (const json& steps :
       {inside(run.report, {"plan", "steps"}), inside(run.config, {"train", "steps"})})
    if (steps.is_number_integer()) return steps.get<int64_t>();
  return 0;
}

bool has_diverged(const RecordedCurve& losses) {
  constexpr double kNats = 0.5;
  std::vector<double> sums{0};
  for (const RecordedPoint& point : losses)
    if (std::isfinite(point.value)) sums.push_back(sums.back() + point.value);
  const size_t count = sums.size() - 1, window = std::max<size_t>(count / 50, 1);
  if (count < 2) return false;
  const auto mean_before = [&](size_t end) {
    return (sums[end] - sums[end - window]) / double(window);
  };
  double least = INFINITY;
  for (size_t end = window; end <= count; ++end) least = std::min(least, mean_before(end));
  return mean_before(count) > least + kNats;
}

std::string state_text(const RunRecords& run, RunOutcome state) {
  const int64_t planned = planned_steps(run);
  const std::string of = planned > 0 ? fmt::format(" of {}", planned) : "";
  switch (state) {
    case RunOutcome::kComplete:
      return fmt::format("complete, {}{} steps", run.last_step, of);
    case RunOutcome::kNotFinite:
      return fmt::format("not finite at step {}{}", run.last_step, of);
    case RunOutcome::kDiverged:
      return fmt::format("diverged, at step {}{}", run.last_step, of);
    case RunOutcome::kUnfinished:
      break;
  }
  return fmt::format("at step {}{}: stopped or still training", run.last_step, of);
}

std::string_view state_class(RunOutcome state) {
  return state == RunOutcome::kComplete     ? "good"
         : state == RunOutcome::kUnfinished ? "open"
                                            : "bad";
}

std::string name_cell(const PageRuns& runs, size_t i, std::string_view element = "td") {
  return fmt::format("<{0} class=\"name c{1}\">{2}</{0}>", element, i,
                     short_html(runs[i].name, kMostNameBytes));
}

int64_t not_finite(const RunRecords& run) {
  const RecordedCurve* losses = curve_of(run, "train/loss");
  return losses == nullptr ? 0 : std::ranges::count_if(*losses, [](const RecordedPoint& point) {
    return !std::isfinite(point.value);
  });
}

std::string outcome_row(const PageRuns& runs, size_t i, int64_t most_steps) {
  const RunRecords& run = runs[i];
  const RunOutcome state = state_of(run);
  const RecordedCurve *losses = curve_of(run, "train/loss"),
                      *validation = curve_of(run, "validation/loss");
  const double speed = median(curve_of(run, "train/tokens_per_second"));
  return "<tr>" + name_cell(runs, i) +
         fmt::format(
             "<td class={}>{}<div class=track><i "
             "style=\"width:{:.1f}%\"></i></div></td>"
             "<td class=n>{}</td><td class=n>{}</td><td class=n>{}</td><td "
             "class=n>{}</td>"
             "<td class=n>{}</td><td class=n>{}</td><td class=n>{}</td></tr>\n",
             state_class(state), state_text(run, state),
             100.0 * double(run.last_step) / double(std::max<int64_t>(most_steps, 1)),
             number_or_dash(losses == nullptr ? NAN : losses->back().value),
             number_or_dash(validation == nullptr ? NAN : validation->back().value),
             number_or_dash(lowest(validation)), std::isfinite(speed) ? format_count(speed) : "–",
             not_finite(run), run.rolled_back, run.resumed);
}

std::string outcomes(const PageRuns& runs) {
  int64_t most_steps = 0;
  for (const RunRecords& run : runs)
    most_steps = std::max({most_steps, run.last_step, planned_steps(run)});
  std::string html =
      "<h2>Outcome</h2><div class=card><table><tr><th>run<th>how far<th "
      "class=n>last loss"
      "<th class=n>last validation<th class=n>lowest validation<th "
      "class=n>tokens/s, median"
      "<th class=n>steps not finite<th class=n>rollbacks<th "
      "class=n>resumed</tr>\n";
  for (size_t i = 0; i < runs.size(); ++i) html += outcome_row(runs, i, most_steps);
  return html +
         "</table></div><p>Diverged: the mean of the last 2 % of the "
         "training losses is more than "
         "0.5 nats above the lowest such mean. Losses are nats per "
         "token.</p>\n";
}

// --- curves -------------------------------------------------------------------------------------

struct Panel {
  std::string title, tag, unit;
};

// Losses of each set, with that over all sets first.
std::vector<Panel> validation_panels(const PageRuns& runs) {
  constexpr std::string_view kBefore = "validation/", kAfter = "/loss";
  std::set<std::string> sets;
  for (const RunRecords& run : runs)
    for (const auto& [tag, curve] : run.curves)
      if (tag.starts_with(kBefore) && tag.ends_with(kAfter) &&
          tag.size() > kBefore.size() + kAfter.size())
        sets.insert(tag.substr(kBefore.size(), tag.size() - kBefore.size() - kAfter.size()));
  std::vector<Panel> panels{{"Validation loss", "validation/loss", "nats per token"}};
  for (const std::string& set : sets)
    panels.push_back({"Validation loss: " + set, "validation/" + set + "/loss", "nats per token"});
  return panels;
}

std::vector<Panel> panels_of(const PageRuns& runs) {
  std::vector<Panel> panels{{"Training loss", "train/loss", "nats per token"}};
  std::vector<Panel> validation = validation_panels(runs);
  if (validation.size() > kMostValidationSets) validation.resize(kMostValidationSets);
  panels.insert(panels.end(), validation.begin(), validation.end());
  panels.insert(panels.end(),
                {{"Throughput", "train/tokens_per_second", "tokens per second"},
                 {"Gradient norm", "train/grad_norm", "before clipping"},
                 {"Learning rate", "train/lr", ""},
                 {"Updates that moved a stored weight", "updates_moved/all", "share"}});
  std::erase_if(panels, [&](const Panel& panel) {
    return std::ranges::none_of(
        runs, [&](const RunRecords& run) { return curve_of(run, panel.tag) != nullptr; });
  });
  return panels;
}

std::string figure(const PageRuns& runs, const Panel& panel, int64_t most_points) {
  Chart chart{short_html(panel.title, kMostNameBytes), panel.unit, {}};
  for (size_t i = 0; i < runs.size(); ++i)
    if (const RecordedCurve* curve = curve_of(runs[i], panel.tag))
      chart.curves.push_back({short_html(runs[i].name, kMostLabelBytes), curve, int64_t(i)});
  return fmt::format("<figure class=card><figcaption>{}</figcaption>{}</figure>\n", chart.title,
                     chart_svg(chart, most_points));
}

std::string curves(const PageRuns& runs) {
  constexpr int64_t kPointBytes = 40;  // a point of a line and two of its band
  const std::vector<Panel> panels = panels_of(runs);
  const auto count = int64_t(std::max<size_t>(panels.size() * runs.size(), 1));
  const int64_t points = std::clamp<int64_t>(kCurveBytes / kPointBytes / count, 12, 600);
  std::string html = "<h2>Curves over steps</h2><div class=legend>";
  for (size_t i = 0; i < runs.size(); ++i) html += name_cell(runs, i, "span");
  html += "</div><div class=charts>";
  for (const Panel& panel : panels) html += figure(runs, panel, points);
  html += fmt::format(
      "</div><p>A curve has at most {} points: where a run has "
      "more steps, each point is the mean "
      "of a span of steps, and the band shows the least and "
      "the largest value in it. Red marks "
      "are steps whose value was not finite.</p>\n",
      points);
  const size_t sets = validation_panels(runs).size();
  if (sets > kMostValidationSets)
    html += fmt::format("<p>{} of {} validation losses are shown.</p>", kMostValidationSets, sets);
  return html;
}

// --- samples ------------------------------------------------------------------------------------

constexpr size_t kMostSampleSteps = 8, kMostSampleRows = 48;

// Returns the last one, and as many before it, equally spaced, as are shown.
std::vector<int64_t> shown_sample_steps(const RunRecords& run) {
  std::vector<int64_t> all, shown;
  for (const auto& [step, samples] : run.samples) all.push_back(step);
  const size_t count = std::min(all.size(), kMostSampleSteps);
  for (size_t i = 0; i < count; ++i)
    shown.push_back(all[all.size() - 1 - i * (all.size() - 1) / std::max<size_t>(count - 1, 1)]);
  return shown;
}

std::string samples_of(const RunRecords& run, int64_t most_bytes) {
  const auto cell = std::max<int64_t>(most_bytes / int64_t(kMostSampleRows), 40);
  std::string html = "<table><tr><th class=n>step<th>prompt<th>what the model wrote";
  size_t rows = 0;
  for (const int64_t step : shown_sample_steps(run))
    for (const RecordedSample& sample : run.samples.at(step)) {
      if (rows++ == kMostSampleRows) return html + "</tr></table>";
      html += fmt::format("</tr>\n<tr><td class=n>{}<td>{}<td><pre>{}</pre>", step,
                          short_html(sample.prompt, cell / 4), short_html(sample.text, cell / 2));
    }
  return html + "</tr></table>";
}

std::string samples(const PageRuns& runs) {
  std::string html;
  for (size_t i = 0; i < runs.size(); ++i)
    if (!runs[i].samples.empty())
      html += fmt::format("<details{}><summary>{}</summary>{}</details>\n",
                          html.empty() ? " open" : "", short_html(runs[i].name, kMostNameBytes),
                          samples_of(runs[i], kSampleBytes / int64_t(runs.size())));
  if (html.empty()) return "";
  return "<h2>Samples</h2><div class=card>" + html + "</div>\n";
}

// --- memory, configurations, environment --------------------------------------------------------

std::string memory(const PageRuns& runs) {
  constexpr size_t kMostPurposes = 32;
  std::vector<std::string> purposes;
  for (const RunRecords& run : runs) {
    const json allocated = inside(run.report, {"plan", "allocated_bytes"});
    for (const auto& [purpose, bytes] : allocated.items())
      if (bytes.is_number() && purpose != "total" && purposes.size() < kMostPurposes &&
          std::ranges::find(purposes, purpose) == purposes.end())
        purposes.push_back(purpose);
  }
  if (purposes.empty()) return "";
  purposes.emplace_back("total");
  std::string html = "<h2>Memory</h2><div class=card><table><tr><th>run";
  for (const std::string& purpose : purposes) html += "<th class=n>" + short_html(purpose, 100);
  for (size_t i = 0; i < runs.size(); ++i) {
    html += "</tr>\n<tr>" + name_cell(runs, i);
    for (const std::string& purpose : purposes) {
      const json bytes = inside(runs[i].report, {"plan", "allocated_bytes", purpose.c_str()});
      html += fmt::format("<td class=n>{}</td>",
                          bytes.is_number() ? format_bytes(bytes.get<double>()) : "–");
    }
  }
  return html +
         "</tr></table></div><p>What the run allocates, of several "
         "ranks the first: counted before "
         "its first step, as <code>mpretrain plan</code> does.</p>\n";
}

// Maps "a.b" to its value.
std::map<std::string, std::string> flat_config(const json& config) {
  std::map<std::string, std::string> flat;
  if (!config.is_object()) return flat;
  const json values = config.flatten();
  for (const auto& [pointer, value] : values.items()) {
    std::string key = pointer.substr(std::min<size_t>(pointer.size(), 1));
    std::ranges::replace(key, '/', '.');
    flat[key] = text_of(value);
  }
  return flat;
}

std::string differences(const PageRuns& runs) {
  if (runs.size() < 2) return "";
  std::vector<std::map<std::string, std::string>> configs;
  std::set<std::string> keys;
  for (const RunRecords& run : runs) {
    configs.push_back(flat_config(run.config));
    for (const auto& [key, value] : configs.back()) keys.insert(key);
  }
  const auto value = [&](size_t run, const std::string& key) {
    const auto found = configs[run].find(key);
    return found == configs[run].end() ? std::string("–") : found->second;
  };
  std::erase_if(keys, [&](const std::string& key) {
    for (size_t i = 1; i < runs.size(); ++i)
      if (value(i, key) != value(0, key)) return false;
    return true;
  });
  if (keys.empty())
    return "<h2>What differs</h2><p>Nothing: the configurations are the "
           "same.</p>";
  const int64_t cell = std::clamp<int64_t>(kDifferenceBytes / int64_t(runs.size()) / 40, 60, 400);
  const int64_t rows = std::max<int64_t>(kDifferenceBytes / cell / int64_t(runs.size() + 1), 8);
  std::string html = "<h2>What differs</h2><div class=card><table><tr><th>key";
  for (size_t i = 0; i < runs.size(); ++i) html += name_cell(runs, i, "th");
  int64_t shown = 0;
  for (const std::string& key : keys) {
    if (shown++ == rows) break;
    html += "</tr>\n<tr><td><code>" + short_html(key, cell) + "</code></td>";
    for (size_t i = 0; i < runs.size(); ++i)
      html += "<td><code>" + short_html(value(i, key), cell) + "</code></td>";
  }
  html += "</tr></table></div>";
  if (int64_t(keys.size()) > rows)
    html += fmt::format("<p>{} of {} keys that differ are shown.</p>", rows, keys.size());
  return html;
}

std::string environment(const PageRuns& runs) {
  constexpr std::array kKeys{"program", "started_at", "device", "gemms", "attention", "ranks"};
  constexpr int64_t kMostValue = 1000;
  std::string html = "<h2>Environment</h2><div class=card><table><tr><th>run";
  for (const char* key : {"program", "last started", "device", "GEMMs", "attention", "ranks"})
    html += fmt::format("<th>{}", key);
  for (size_t i = 0; i < runs.size(); ++i) {
    html += "</tr>\n<tr>" + name_cell(runs, i);
    for (const char* key : kKeys) {
      const json value = inside(runs[i].report, {key});
      const std::string text = value.is_null() ? "" : text_of(value);
      html += "<td>" + (text.empty() ? "–" : short_html(text, kMostValue)) + "</td>";
    }
  }
  return html + "</tr></table></div>\n";
}

std::string configurations(const PageRuns& runs) {
  std::string html = "<h2>Configurations</h2>";
  for (const RunRecords& run : runs) {
    const std::string text = run.config.is_null() ? "no config.json" : json_text(run.config, 2);
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n",
                        short_html(run.name, kMostNameBytes),
                        short_html(text, kConfigBytes / int64_t(runs.size())));
  }
  return html;
}

}  // namespace

RunOutcome state_of(const RunRecords& run) {
  const RecordedCurve* losses = curve_of(run, "train/loss");
  if (losses != nullptr && !std::isfinite(losses->back().value)) return RunOutcome::kNotFinite;
  if (losses != nullptr && has_diverged(*losses)) return RunOutcome::kDiverged;
  const int64_t planned = planned_steps(run);
  return planned > 0 && run.last_step >= planned ? RunOutcome::kComplete : RunOutcome::kUnfinished;
}

std::string run_page(const PageRuns& runs) {
  if (runs.empty() || runs.size() > kMostPageRuns)
    throw error("{} runs for one page; it takes 1 to {}", runs.size(), kMostPageRuns);
  const std::string title = runs.size() == 1 ? short_html(runs[0].name, kMostNameBytes)
                                             : fmt::format("{} runs", runs.size());
  return std::string(kPageHead) + color_rules() + "</style><title>" + title +
         "</title></head><body><h1>" + title + "</h1>\n" + outcomes(runs) + curves(runs) +
         samples(runs) + memory(runs) + differences(runs) + environment(runs) +
         configurations(runs) + "</body></html>\n";
}

}  // namespace mpt
