#include "train/reports/profile_table.h"

#include <string>
#include <vector>

#include <fmt/format.h>

namespace mpt {
namespace {

double total_seconds(const std::vector<Profile::Node>& nodes) {
  double seconds = 0;
  for (const Profile::Node& node : nodes) seconds += node.self_seconds;
  return seconds;
}

std::string flop_columns(const Profile::Node& node, double gemm_rate) {
  if (node.flops == 0) return "";
  const double rate = node.flops / node.seconds;
  return fmt::format(" {:>10.1f} {:>10.1f}", rate / 1e9, 100 * rate / gemm_rate);
}

}  // namespace

std::string profile_table(const Profile& profile, const ProfiledSteps& of) {
  const std::vector<Profile::Node> nodes = profile.nodes();
  const auto steps = double(of.steps);
  const double total = total_seconds(nodes);
  std::string text = fmt::format("{:<30} {:>7} {:>10} {:>10} {:>7} {:>10} {:>10}\n", "operation",
                                 "calls", "ms", "self ms", "self %", "GFLOP/s", "% of rate");
  for (const Profile::Node& node : nodes)
    text += fmt::format("{:<30} {:>7.4g} {:>10.3f} {:>10.3f} {:>7.2f}{}\n",
                        fmt::format("{:{}}{}", "", 2 * node.depth, node.name),
                        double(node.calls) / steps, 1e3 * node.seconds / steps,
                        1e3 * node.self_seconds / steps, 100 * node.self_seconds / total,
                        flop_columns(node, of.gemm_rate));
  text += fmt::format(
      "mean of {} steps; self %: share of the {:.3f} ms of a step; rate: {:.1f} GFLOP/s, measured "
      "with large GEMMs\n",
      of.steps, 1e3 * total / steps, of.gemm_rate / 1e9);
  return text;
}

}  // namespace mpt
