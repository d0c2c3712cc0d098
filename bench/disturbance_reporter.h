// Google Benchmark's JSON, in which each benchmark also reports the processor use of other
// processes: scripts/bench.py report repeats disturbed ones.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <unistd.h>

namespace mpt {

// Processor seconds since some time: of all processes, including other guests of the host
// (`steal`), and of this one. `all` is 0 where the system does not count it (/proc/stat, proc(5)).
struct ProcessorTime {
  double wall = 0, all = 0, own = 0;

  static ProcessorTime now() {
    using Seconds = std::chrono::duration<double>;
    ProcessorTime time{.wall =
                           Seconds(std::chrono::steady_clock::now().time_since_epoch()).count()};
    std::ifstream file("/proc/stat");
    std::string name;
    int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    if (file >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)
      time.all =
          double(user + nice + system + irq + softirq + steal) / double(sysconf(_SC_CLK_TCK));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime})
      time.own += double(t.tv_sec) + 1e-6 * double(t.tv_usec);
    return time;
  }
};

// Adds the counter `others`: cores used by others since the previous benchmark, including the
// preparation of this one.
class DisturbanceReporter : public benchmark::JSONReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    const ProcessorTime now = ProcessorTime::now();
    const double used = (now.all - before_.all) - (now.own - before_.own);
    std::vector<Run> told = runs;
    if (now.all > 0)
      for (Run& run : told)
        run.counters["others"] = std::max(used / (now.wall - before_.wall), 0.0);
    JSONReporter::ReportRuns(told);
    before_ = now;
  }

 private:
  ProcessorTime before_ = ProcessorTime::now();
};

}  // namespace mpt
