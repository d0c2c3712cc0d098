#include "train/performance.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "core/bf16.h"
#include "core/progress.h"
#include "core/random.h"

namespace mpt {
namespace {

// A random first row; row r is the first row rotated by r.
std::vector<std::byte> random_matrix(DType dtype, int64_t size, uint32_t which) {
  std::vector<float> row(static_cast<size_t>(size));
  fill_normals({.seed = 0, .tensor = which, .row = 0, .step = 0, .stream = kSyntheticStream}, 1.0,
               size, row.data());
  const auto width = static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> stored(row.size() * width), all(stored.size() * row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    const bf16 narrow = bf16_nearest(row[i]);
    memcpy(&stored[i * width], dtype == DType::kBF16 ? static_cast<const void*>(&narrow) : &row[i],
           width);
  }
  for (size_t r = 0; r < row.size(); ++r)
    std::rotate_copy(stored.begin(), stored.begin() + int64_t(r * width), stored.end(),
                     all.begin() + int64_t(r * stored.size()));
  return all;
}

}  // namespace

double measured_gemm_rate(Device& device) {
  constexpr int kRepeats = 4;
  const bool gpu = device.backend() == Backend::kCuda;
  const DType dtype = gpu ? DType::kBF16 : DType::kF32;
  const int64_t size = gpu ? 8192 : 1024;
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  Tensor operand[3];
  for (uint32_t i = 0; i < 3; ++i) {
    operand[i] = allocator->tensor(kScratchMemory, dtype, size, size);
    device.upload(random_matrix(dtype, size, i).data(), operand[i]);
  }
  const GemmCall call{
      .a = operand[0], .b = operand[1], .d = operand[2], .transpose_b = Transpose::kYes};
  device.gemm().reserve(*allocator, std::array{call});
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    device.gemm().run(call);
    device.synchronize();
    const double seconds = seconds_since(start);
    if (repeat > 0)
      best = std::max(best, 2.0 * double(size) * double(size) * double(size) / seconds);
  }
  return best;
}

double flops_per_token(const LlamaConfig& config, int64_t seq_len) {
  const int64_t layers = config.num_hidden_layers;
  const int64_t in_gemms =
      layers * linear_elements_of_layer(config) + config.vocab_size * config.hidden_size;
  return 6.0 * double(in_gemms) +
         6.0 * double(layers) * double(config.query_width()) * double(seq_len);
}

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
