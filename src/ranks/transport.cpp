#include "ranks/transport.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/bf16.h"
#include "core/check.h"
#include "ranks/mpi/mpi_transport.h"
#include "ranks/transport_checks.h"

namespace mpt {

// Transports without communication: for a run's only rank, and for a plan.

namespace {

class SingleTransport final : public Transport {
 public:
  SingleTransport() : Transport(0, 1) {}
  [[nodiscard]] std::string name() const override { return "one rank"; }

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    check_reduce_scatter(*this, parts, sum);
    sum_in_rank_order(parts, sum);
  }
  void all_gather(std::span<const Tensor> parts) override { check_all_gather(*this, parts); }
  void all_reduce_max(const Tensor& values) override { check_all_reduce_max(values); }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check_gather_host(*this, int64_t(mine.size()), int64_t(all.size()));
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  void broadcast_host(std::span<std::byte> /*bytes*/, int64_t root) override {
    check_root(*this, root);
  }
  void barrier() override {}

  [[nodiscard]] int64_t bytes_sent() const override { return 0; }
  void abort(const std::string& /*cause*/) noexcept override {}
};

class PlannedTransport final : public Transport {
 public:
  using Transport::Transport;
  [[nodiscard]] std::string name() const override {
    return fmt::format("a plan of {} ranks", size());
  }

  void reduce_scatter_sum(std::span<const Tensor>, const Tensor&) override {
    refuse("reduce_scatter_sum");
  }
  void all_gather(std::span<const Tensor>) override { refuse("all_gather"); }
  void all_reduce_max(const Tensor&) override { refuse("all_reduce_max"); }
  void gather_host(std::span<const std::byte>, std::span<std::byte>) override {
    refuse("gather_host");
  }
  void broadcast_host(std::span<std::byte>, int64_t) override { refuse("broadcast_host"); }
  void barrier() override { refuse("barrier"); }

  [[nodiscard]] int64_t bytes_sent() const override { return 0; }
  void abort(const std::string& /*cause*/) noexcept override {}

 private:
  [[noreturn]] void refuse(std::string_view call) const {
    throw LogicError(
        fmt::format("{} called on rank {} of {}, which is only planned", call, rank(), size()));
  }
};

}  // namespace

std::unique_ptr<Transport> make_single_transport() { return std::make_unique<SingleTransport>(); }
std::unique_ptr<Transport> make_planned_transport(int64_t rank, int64_t size) {
  check(rank >= 0 && rank < size, "planned rank {} of {} is out of range", rank, size);
  return std::make_unique<PlannedTransport>(rank, size);
}

}  // namespace mpt
