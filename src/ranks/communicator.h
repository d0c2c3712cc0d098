// One rank's view of all ranks of a run: its own number, and the collectives. Code that deals with
// other ranks holds only a reference to a Communicator. A single-process run has one of size 1,
// whose collectives return at once, without a thread, an event or a row in the profile.
//
//   // Overlaps with the device's work:
//   const auto event = ranks.run([&](Transport& t) { t.reduce_scatter_sum(parts, sum); });
//   ranks.wait(event);  // later device work starts after it
//
// A Transport moves the bytes. All ranks make its calls in the same order, on the communication
// stream (CommStream), where they may overlap with computation.
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

#include "device/device.h"
#include "ranks/transport.h"
#include "ranks/transport_kind.h"

namespace mpt {

class Device;
struct LaunchEnvironment;

class Communicator {
 public:
  using Event = CommStream::Event;  // returned by run()

  // The communicator of a single process. It has no state, so one instance serves all.
  static Communicator& single();
  // For a dry run: knows rank and size; any call that would involve other ranks is a LogicError.
  static Communicator planned(int64_t rank, int64_t size);
  // Connects this process to the others started by its launcher, with the transport suited to
  // tensors on `device`. Throws Error if the others cannot be reached, or if a rank does not arrive
  // within the timeout, now or in a later call.
  static Communicator connect(const LaunchEnvironment& environment,
                              std::chrono::milliseconds timeout, Device& device,
                              TransportKind kind = TransportKind::kAuto);

  // `comm_stream` must belong to `device`, which must outlive this object and whose host waits are
  // guarded from now on (Transport::wait_for_device). The transport must be used only through this
  // object.
  // one_machine: all ranks report to one log, so an error that one rank reports is left to it.
  Communicator(std::unique_ptr<Transport> transport, std::unique_ptr<CommStream> comm_stream,
               Device& device, bool one_machine = true);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int64_t rank() const { return transport_->rank(); }
  [[nodiscard]] int64_t size() const { return transport_->size(); }
  [[nodiscard]] bool is_single() const { return size() == 1; }
  [[nodiscard]] bool is_root() const { return rank() == 0; }
  // Transport name; empty for a single process and for a plan.
  [[nodiscard]] std::string name() const;

  // The communication stream, for work that overlaps with computation.
  [[nodiscard]] CommStream& comm_stream() const { return *comm_stream_; }
  // Calls CommStream::settle; required before freeing memory used by communication.
  void settle() { comm_stream_->settle(); }

  // Runs work on the communication stream, possibly on another thread: everything it uses must live
  // until it has run.
  Event run(std::function<void(Transport&)> work);
  void wait(Event event) { comm_stream_->wait(event); }

  // Ordered with the device's work. `parts` and the memory they view must live until it is done.
  void all_gather(std::span<const Tensor> parts);
  void all_reduce_max(const Tensor& values);

  // Collectives on host memory, complete on return. `all` is in rank order.
  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all);
  std::vector<int64_t> gather_numbers(int64_t mine);
  std::vector<std::string> gather_texts(std::string_view mine);

  // Runs `work` on every rank. If it throws Error on some ranks, all ranks throw an Error naming
  // the rank and the reason. Collective.
  void together(const std::function<void()>& work);
  // Runs `work`, which all ranks must call. If it throws, logs the error and notifies the other
  // ranks before throwing a ReportedError (if it was an Error; else it is rethrown). Memory that
  // collectives still use must outlive this call.
  void or_abort(const std::function<void()>& work);
  // failures: one text per rank, equal on all ranks. Throws the first that is not empty: as an
  // Error on its own rank, on others as a RelayedError.
  void throw_first(const std::vector<std::string>& failures) const;

 private:
  explicit Communicator(std::unique_ptr<Transport> transport);
  void in_order(const std::function<void(Transport&)>& work);

  std::unique_ptr<CommStream> comm_stream_;
  std::unique_ptr<Transport> transport_;
  bool one_machine_ = true;
  Device* device_ = nullptr;  // its waits are guarded; null for a single process and for a plan
};

}  // namespace mpt
