// Distance of computed numbers from exact ones, as bounds that follow from the roundings of a
// format.
#pragma once

#include <cmath>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace mpt::test {

inline constexpr double kFp32Rounding =
    0x1p-24;  // largest relative error of one rounding to nearest
inline constexpr double kBf16Rounding = 0x1p-8;

struct Deviation {
  double relative_norm = 0;  // |got - want| / |want| in the Euclidean norm
  double relative_max = 0;   // max |got - want| / max |want|
};

template <class Got, class Want>
Deviation deviation(const Got& got, const Want& want) {
  EXPECT_EQ(std::size(got), std::size(want));
  double difference = 0, norm = 0, most = 0, largest = 0;
  for (size_t i = 0; i < std::min(std::size(got), std::size(want)); ++i) {
    const double d = std::abs(double(got[i]) - double(want[i]));
    if (!(d <= std::numeric_limits<double>::max())) return {INFINITY, INFINITY};
    difference += d * d;
    norm += double(want[i]) * double(want[i]);
    most = std::max(most, d);
    largest = std::max(largest, std::abs(double(want[i])));
  }
  if (most == 0) return {};
  return {std::sqrt(difference / norm), most / largest};
}

}  // namespace mpt::test
