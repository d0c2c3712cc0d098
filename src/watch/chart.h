// A chart of curves as inline SVG, small for any number of points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "watch/run_records.h"

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

// Returns a chart. A curve is drawn with at most `most_points` points: each is the mean over its
// span of steps, with a band from the minimum to the maximum where the span has several. Marks on
// the axis are steps whose value is not finite. The axis cuts off isolated peaks and says so.
std::string chart_svg(const Chart& chart, int64_t most_points);

// "12.5k", "0.00031": a number as shown on axes and in tables.
std::string short_number(double value);
// Returns the text with <, >, & and quotes as entities; bytes that are not UTF-8 and control
// characters become U+FFFD.
std::string html_text(std::string_view text);

}  // namespace mpt
