// A communicator's collectives in the order of a device's work: beside it, or within it.
//
//   const auto ticket = collectives.run([&] { communicator.reduce_scatter_sum(parts, sum); });   overlaps
//   collectives.wait(ticket);                                    what the device is given next comes after it
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "device/device.h"
#include "device/side_queue.h"

namespace mpt {

class Collectives {
 public:
  using Ticket = SideQueue::Ticket;

  // Both outlive this. The communicator is used through this object alone.
  Collectives(Communicator& communicator, SideQueue& queue) : communicator_(communicator), queue_(queue) {}

  [[nodiscard]] int64_t rank() const { return communicator_.rank(); }
  [[nodiscard]] int64_t size() const { return communicator_.size(); }
  [[nodiscard]] Communicator& communicator() const { return communicator_; }
  [[nodiscard]] SideQueue& queue() const { return queue_; }

  // Work of the side queue, in which the communicator may be called.
  Ticket run(std::function<void()> work) { return queue_.run(std::move(work)); }
  void wait(Ticket ticket) { queue_.wait(ticket); }

  // In the order of the device's work. `parts` and what they view live until that is done.
  void all_gather(std::span<const Tensor> parts) {
    wait(run([this, parts] { communicator_.all_gather(parts); }));
  }
  void all_reduce_max(const Tensor& values) {
    wait(run([this, values] { communicator_.all_reduce_max(values); }));
  }

 private:
  Communicator& communicator_;
  SideQueue& queue_;
};

}  // namespace mpt
