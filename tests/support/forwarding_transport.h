// Forwards to another transport: a base for decorators, and for a Communicator over a transport it
// does not own, such as that of a rank thread.
#pragma once

#include <functional>
#include <string>

#include "ranks/transport.h"

namespace mpt::test {

class ForwardingTransport : public Transport {
 public:
  // `inner` must outlive this object.
  explicit ForwardingTransport(Transport& inner)
      : Transport(inner.rank(), inner.size()), inner_(inner) {}

  [[nodiscard]] std::string name() const override { return inner_.name(); }
  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    inner_.reduce_scatter_sum(parts, sum);
  }
  void all_gather(std::span<const Tensor> parts) override { inner_.all_gather(parts); }
  void all_reduce_max(const Tensor& values) override { inner_.all_reduce_max(values); }
  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    inner_.gather_host(mine, all);
  }
  void broadcast_host(std::span<std::byte> bytes, int64_t root) override {
    inner_.broadcast_host(bytes, root);
  }
  void barrier() override { inner_.barrier(); }
  [[nodiscard]] int64_t bytes_sent() const override { return inner_.bytes_sent(); }
  void wait_for_device(const std::function<void()>& wait) override { inner_.wait_for_device(wait); }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }

 protected:
  Transport& inner_;
};

}  // namespace mpt::test
