// The communicator of a process that has no others.
#include <algorithm>
#include <array>

#include "comm/collective_calls.h"
#include "comm/communicator.h"

namespace mpt {
namespace {

constexpr RankOfAll kAlone{.rank = 0, .size = 1};

class SingleCommunicator final : public Communicator {
 public:
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t size() const override { return 1; }
  [[nodiscard]] std::string name() const override { return "one rank"; }

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    check_reduce_scatter(kAlone, parts, sum);
    sum_in_rank_order(parts, sum);
  }
  void all_gather(std::span<const Tensor> parts) override { check_all_gather(kAlone, parts); }
  void all_reduce_max(const Tensor& values) override { check_all_reduce_max(values); }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check_gather_host(kAlone, int64_t(mine.size()), int64_t(all.size()));
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  void broadcast_host(std::span<std::byte> /*bytes*/, int64_t root) override { check_root(kAlone, root); }
  void barrier() override {}

  [[nodiscard]] int64_t bytes_sent() const override { return 0; }
  void abort(const std::string& /*cause*/) noexcept override {}
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

}  // namespace mpt
