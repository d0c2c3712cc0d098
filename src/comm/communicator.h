// The ranks of a run as one of them sees them: which it is, and what they do together. All that code holds of
// other ranks is one of these, by reference. A process that has no others has one too: a communicator of one
// rank, whose collectives return at once, with no thread, no event and no row in a profile.
//
//   const auto event = ranks.run([&](Transport& t) { t.reduce_scatter_sum(parts, sum); });   overlaps
//   ranks.wait(event);                                      what the device is given next comes after it
//
// What carries the bytes is a Transport. Its calls are made in one order by all ranks, on a second stream
// beside the device's own (CommStream), where they may overlap with computing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport.h"
#include "device/device.h"

namespace mpt {

class Device;
struct LaunchEnvironment;

class Communicator {
 public:
  using Event = CommStream::Event;  // of run()

  // Of one rank. It has no state, so there is one for all.
  static Communicator& single();
  // For a plan: rank and size are known, what several ranks would do together is a LogicError.
  static Communicator planned(int64_t rank, int64_t size);
  // This process among those that its launcher started, by what carries tensors of `device`. Throws Error
  // where the others cannot be reached; or where one does not come within the timeout, now and later.
  static Communicator connect(const LaunchEnvironment& environment, std::chrono::milliseconds timeout,
                              Device& device);

  // `comm_stream` is of the device, which outlives this and whose waits are guarded from now on
  // (Transport::wait_for_device). The transport is used through this object alone.
  Communicator(std::unique_ptr<Transport> transport, std::unique_ptr<CommStream> comm_stream, Device& device);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int64_t rank() const { return transport_->rank(); }
  [[nodiscard]] int64_t size() const { return transport_->size(); }
  [[nodiscard]] bool is_single() const { return size() == 1; }
  [[nodiscard]] bool is_root() const { return rank() == 0; }
  // What carries the ranks' messages; empty where nothing does.
  [[nodiscard]] std::string name() const;

  // The second stream: what work that overlaps is enqueued on.
  [[nodiscard]] CommStream& comm_stream() const { return *comm_stream_; }
  // Drops what has not begun of it and waits for what has: for an end with an error.
  void stop() { comm_stream_->stop(); }

  // Work beside the device's own. It may be called on another thread: what it uses must live until then.
  Event run(std::function<void(Transport&)> work);
  void wait(Event event) { comm_stream_->wait(event); }

  // In the order of the device's work. `parts` and what they view live until that is done.
  void all_gather(std::span<const Tensor> parts);
  void all_reduce_max(const Tensor& values);

  // Host memory, done when they return. What every rank gives, in the order of ranks.
  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all);
  std::vector<int64_t> gather_numbers(int64_t mine);
  std::vector<std::string> gather_texts(std::string_view mine);

  // Runs the work on every rank. Where it throws Error on some, an Error that names the rank and says why is
  // thrown on all. Collective.
  void together(const std::function<void()>& work);
  // Runs what all ranks do. If it throws, that is logged and told to the others before it is passed on; what
  // collectives still use must outlive this.
  void or_abort(const std::function<void()>& work);

 private:
  explicit Communicator(std::unique_ptr<Transport> transport);
  void in_order(const std::function<void(Transport&)>& work);

  std::unique_ptr<CommStream> comm_stream_;
  std::unique_ptr<Transport> transport_;
  Device* device_ = nullptr;  // whose waits are guarded; none of one rank and of a plan
};

}  // namespace mpt
