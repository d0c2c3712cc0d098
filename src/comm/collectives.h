// A transport's collectives in the order of a device's work: beside it, or within it.
//
//   const auto ticket = collectives.run([&] { transport.reduce_scatter_sum(parts, sum); });   overlaps
//   collectives.wait(ticket);                                    what the device is given next comes after it
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "comm/transport.h"
#include "device/device.h"
#include "device/side_queue.h"

namespace mpt {

class Collectives {
 public:
  using Ticket = SideQueue::Ticket;

  // Both outlive this. The transport is used through this object alone.
  Collectives(Transport& transport, SideQueue& queue) : transport_(transport), queue_(queue) {}

  [[nodiscard]] int64_t rank() const { return transport_.rank(); }
  [[nodiscard]] int64_t size() const { return transport_.size(); }
  [[nodiscard]] Transport& transport() const { return transport_; }
  [[nodiscard]] SideQueue& queue() const { return queue_; }

  // Work of the side queue, in which the transport may be called.
  Ticket run(std::function<void()> work) { return queue_.run(std::move(work)); }
  void wait(Ticket ticket) { queue_.wait(ticket); }

  // In the order of the device's work. `parts` and what they view live until that is done.
  void all_gather(std::span<const Tensor> parts) {
    wait(run([this, parts] { transport_.all_gather(parts); }));
  }
  void all_reduce_max(const Tensor& values) {
    wait(run([this, values] { transport_.all_reduce_max(values); }));
  }

 private:
  Transport& transport_;
  SideQueue& queue_;
};

}  // namespace mpt
