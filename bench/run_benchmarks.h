// Main function of the benchmarks, with a default for the duration of each.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "disturbance_reporter.h"

namespace mpt {

// Runs the registered benchmarks, at least `seconds` each unless --benchmark_min_time is given.
inline int run_benchmarks(int argc, char** argv, double seconds) {
  std::string min_time = fmt::format("--benchmark_min_time={}", seconds);
  std::vector<char*> arguments{argv[0], min_time.data()};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  const bool json = std::any_of(argv, argv + argc, [](std::string_view argument) {
    return argument == "--benchmark_format=json";
  });
  int count = int(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  DisturbanceReporter reporter;
  benchmark::RunSpecifiedBenchmarks(json ? &reporter : nullptr);
  return 0;
}

}  // namespace mpt
