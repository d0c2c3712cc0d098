// A chart of curves as inline SVG, small whatever the number of points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/watch/run_records.h"

namespace mpt {

struct ChartCurve {
  std::string label;  // HTML
  const RecordedCurve* points;
  int64_t color;  // of the page's series
};

struct Chart {
  std::string title;  // HTML
  std::string unit;   // of the vertical axis
  std::vector<ChartCurve> curves;
};

// A curve is drawn with at most `most_points` points: each is the mean of those
// in its stretch of steps, with a band from the least to the largest where
// there are more of them. Marks on the axis are steps whose value is not
// finite. The axis leaves out single peaks and says so.
std::string chart_svg(const Chart& chart, int64_t most_points);

// "12.5k", "0.00031": a number as axes and tables have it.
std::string short_number(double value);
// The text with <, >, & and quotes as entities; bytes that are not UTF-8 and
// control characters become U+FFFD.
std::string html_text(std::string_view text);

}  // namespace mpt
