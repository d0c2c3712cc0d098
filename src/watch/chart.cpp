#include "watch/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/text/shown_text.h"

namespace mpt {
namespace {

constexpr double kWidth = 640, kHeight = 300;
constexpr double kLeft = 58, kRight = 20, kTop = 10, kBottom = 28;
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Span {
  double least = kInf, most = -kInf;
  void take(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  [[nodiscard]] bool empty() const { return !(least <= most); }
};

struct ChartBucket {
  double step = 0, mean = 0;
  Span values;
};

// Returns whether a chart can place the value: sums and differences are finite, too.
bool is_drawn(double value) { return std::abs(value) < 1e300; }

// Returns the steps without such a value; if there are many, evenly spaced ones.
std::vector<double> marks_of(const RecordedCurve& curve) {
  constexpr size_t kMost = 200;
  std::vector<double> steps, marks;
  for (const RecordedPoint& point : curve)
    if (!is_drawn(point.value)) steps.push_back(double(point.step));
  const size_t count = std::min(steps.size(), kMost);
  for (size_t i = 0; i < count; ++i) marks.push_back(steps[i * steps.size() / count]);
  return marks;
}

// Returns consecutive spans of steps.
std::vector<ChartBucket> buckets_of(const RecordedCurve& curve, int64_t most_points) {
  std::vector<RecordedPoint> finite;
  for (const RecordedPoint& point : curve)
    if (is_drawn(point.value)) finite.push_back(point);
  const auto count = std::min<int64_t>(int64_t(finite.size()), most_points);
  std::vector<ChartBucket> buckets;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = int64_t(finite.size()) * i / count;
    const int64_t end = int64_t(finite.size()) * (i + 1) / count;
    ChartBucket bucket;
    for (int64_t k = begin; k < end; ++k) {
      bucket.step += double(finite[size_t(k)].step) / double(end - begin);
      bucket.mean += finite[size_t(k)].value / double(end - begin);
      bucket.values.take(finite[size_t(k)].value);
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

// Returns multiples of 1, 2 or 5 times a power of ten that divide the span into at most `most`
// parts; none if doubles are too coarse for that.
std::vector<double> ticks(const Span& span, int64_t most) {
  const double least = (span.most - span.least) / double(most);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  double distance = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= least) distance = factor * power;
  std::vector<double> values;
  const double first = std::ceil(span.least / distance);
  if (!std::isfinite(first) || std::abs(first) > 1e12) return values;
  for (int64_t i = 0; i <= most; ++i)
    if (const double value = (first + double(i)) * distance; value <= span.most)
      values.push_back(value);
  return values;
}

Span widened(Span span) {
  if (span.empty()) return {0, 1};
  const double height = span.most - span.least;
  const double margin = height > 0 ? 0.06 * height : std::max(std::abs(span.most) * 0.05, 1e-6);
  return {span.least - margin, span.most + margin};
}

Span values_of(const std::vector<std::vector<ChartBucket>>& curves) {
  Span all;
  for (const auto& curve : curves)
    for (const ChartBucket& bucket : curve) {
      all.take(bucket.values.least);
      all.take(bucket.values.most);
    }
  return all;
}

// A few values far above all others would flatten the rest into a line.
Span without_spikes(const std::vector<std::vector<ChartBucket>>& curves) {
  Span all = values_of(curves);
  std::vector<double> most;
  for (const auto& curve : curves)
    for (const ChartBucket& bucket : curve) most.push_back(bucket.values.most);
  if (most.size() < 20) return all;
  std::sort(most.begin(), most.end());
  const double high = most[most.size() * 95 / 100], low = all.least;
  if (all.most - low > 4 * (high - low) && high > low) all.most = high + 0.5 * (high - low);
  return all;
}

class Plot {
 public:
  Plot(Span x, Span y) : x_(x), y_(y) {}

  [[nodiscard]] std::string axes(const std::string& unit) const {
    std::string svg;
    for (const double value : ticks(y_, 6))
      svg += fmt::format(
          "<path class=grid d=\"M{} {:.1f}H{}\"/><text class=y "
          "x={} y={:.1f}>{}</text>",
          kLeft, at_y(value), kWidth - kRight, kLeft - 8, at_y(value) + 4, short_number(value));
    for (const double value : ticks(x_, 7))
      svg += fmt::format("<text class=x x={:.1f} y={}>{}</text>", at_x(value), kHeight - 8,
                         short_number(value));
    return svg + fmt::format(
                     "<path class=axis d=\"M{} {}H{}\"/><text "
                     "class=unit x={} y={}>{}</text>",
                     kLeft, kHeight - kBottom, kWidth - kRight, kLeft + 4, kTop + 10,
                     html_text(unit));
  }
  // States the largest value above the axis.
  [[nodiscard]] std::string cut(double most) const {
    if (!(most > y_.most)) return "";
    return fmt::format("<text class=cut x={} y={}>cut off; the largest is {}</text>",
                       kWidth - kRight, kTop + 10, short_number(most));
  }
  // Draws short lines above the axis of steps.
  [[nodiscard]] std::string marks(const std::vector<double>& steps) const {
    std::string path;
    for (const double step : steps)
      path += fmt::format("M{:.1f} {}v-8", at_x(step), kHeight - kBottom);
    return path.empty() ? "" : fmt::format("<path class=mark d=\"{}\"/>", path);
  }
  [[nodiscard]] std::string band(const std::vector<ChartBucket>& buckets, int64_t color) const {
    std::string path, back;
    for (const ChartBucket& bucket : buckets)
      path += point(path.empty() ? 'M' : 'L', bucket.step, bucket.values.most);
    for (size_t i = buckets.size(); i-- > 0;)
      back += point('L', buckets[i].step, buckets[i].values.least);
    return fmt::format("<path class=\"band c{}\" d=\"{}{}Z\"/>", color, path, back);
  }
  [[nodiscard]] std::string line(const std::vector<ChartBucket>& buckets,
                                 const ChartCurve& curve) const {
    std::string path, dots;
    for (const ChartBucket& bucket : buckets)
      path += point(path.empty() ? 'M' : 'L', bucket.step, bucket.mean);
    constexpr size_t kFew = 24;
    if (curve.points->size() <= kFew)
      for (const ChartBucket& bucket : buckets)
        dots += fmt::format("<circle class=\"dot c{}\" cx={:.1f} cy={:.1f} r=2.6 />", curve.color,
                            at_x(bucket.step), at_y(bucket.mean));
    return fmt::format("<path class=\"line c{}\" d=\"{}\"><title>{}</title></path>{}", curve.color,
                       path, curve.label, dots);
  }

 private:
  [[nodiscard]] double at_x(double value) const {
    return kLeft + (value - x_.least) / (x_.most - x_.least) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double at_y(double value) const {
    const double share = std::clamp((value - y_.least) / (y_.most - y_.least), 0.0, 1.0);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
  [[nodiscard]] std::string point(char command, double step, double value) const {
    return fmt::format("{}{:.1f} {:.1f}", command, at_x(step), at_y(value));
  }

  Span x_, y_;
};

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size >= 1e12 || (size > 0 && size < 1e-4)) return fmt::format("{:.3g}", value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.5g}", value);
}

std::string html_text(std::string_view text) {
  std::string html;
  for (const char c : without_controls(text)) {
    if (c == '<')
      html += "&lt;";
    else if (c == '>')
      html += "&gt;";
    else if (c == '&')
      html += "&amp;";
    else if (c == '"')
      html += "&quot;";
    else if (c == '\'')
      html += "&#39;";
    else
      html += c;
  }
  return html;
}

std::string chart_svg(const Chart& chart, int64_t most_points) {
  std::vector<std::vector<ChartBucket>> curves;
  Span steps;
  for (const ChartCurve& curve : chart.curves) {
    curves.push_back(buckets_of(*curve.points, most_points));
    for (const RecordedPoint& point : *curve.points) steps.take(double(point.step));
  }
  if (steps.empty()) steps = {0, 1};
  if (steps.least == steps.most) steps = {steps.least - 1, steps.most + 1};
  const Plot plot(steps, widened(without_spikes(curves)));
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=img aria-label=\"{}\">", kWidth,
                                kHeight, chart.title);
  svg += plot.axes(chart.unit) + plot.cut(values_of(curves).most);
  for (const ChartCurve& curve : chart.curves) svg += plot.marks(marks_of(*curve.points));
  for (size_t i = 0; i < curves.size(); ++i)
    if (int64_t(chart.curves[i].points->size()) > most_points)
      svg += plot.band(curves[i], chart.curves[i].color);
  for (size_t i = 0; i < curves.size(); ++i) svg += plot.line(curves[i], chart.curves[i]);
  return svg + "</svg>";
}

}  // namespace mpt
