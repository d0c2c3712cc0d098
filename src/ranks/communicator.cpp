#include "ranks/communicator.h"

#include <algorithm>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "device/device.h"
#include "ranks/make_transport.h"
#include "ranks/relayed_error.h"
#include "ranks/transport.h"

namespace mpt {
namespace {

// Replaces a communication stream when there is nothing to wait for: runs work at once.
class DoneAtOnce final : public CommStream {
 public:
  Event run(std::function<void()> work) override {
    work();
    return 0;
  }
  void wait(Event /*event*/) override {}
  void settle() override {}
};

}  // namespace

Communicator& Communicator::single() {
  static Communicator one(make_single_transport());
  return one;
}

Communicator Communicator::planned(int64_t rank, int64_t size) {
  return Communicator(make_planned_transport(rank, size));
}

Communicator Communicator::connect(const LaunchEnvironment& environment,
                                   std::chrono::milliseconds timeout, Device& device,
                                   TransportKind kind) {
  if (environment.size == 1) return Communicator(make_single_transport());
  std::unique_ptr<CommStream> comm_stream = device.make_comm_stream();
  std::unique_ptr<Transport> transport = make_transport(
      environment, {.kind = kind, .timeout = timeout, .stream = comm_stream->stream()});
  return {std::move(transport), std::move(comm_stream), device,
          environment.local_size == environment.size};
}

Communicator::Communicator(std::unique_ptr<Transport> transport)
    : comm_stream_(std::make_unique<DoneAtOnce>()), transport_(std::move(transport)) {}

Communicator::Communicator(std::unique_ptr<Transport> transport,
                           std::unique_ptr<CommStream> comm_stream, Device& device,
                           bool one_machine)
    : comm_stream_(std::move(comm_stream)),
      transport_(std::move(transport)),
      one_machine_(one_machine),
      device_(&device) {
  device.guard_waits(
      [this](const std::function<void()>& wait) { transport_->wait_for_device(wait); });
}

Communicator::~Communicator() {
  if (device_ == nullptr) return;
  device_->guard_waits({});
  comm_stream_->settle();
}

std::string Communicator::name() const { return device_ == nullptr ? "" : transport_->name(); }

// --- in the same order on all ranks --------------------------------------------------------------

// Runs at once on a single rank; throws in a plan.
Communicator::Event Communicator::run(std::function<void(Transport&)> work) {
  return comm_stream_->run([this, work = std::move(work)] { work(*transport_); });
}

void Communicator::in_order(const std::function<void(Transport&)>& work) {
  if (is_single()) return;
  if (device_ == nullptr) return work(*transport_);
  const ProfileScope scope(*device_, "communication");
  wait(run(work));
}

void Communicator::all_gather(std::span<const Tensor> parts) {
  in_order([parts](Transport& transport) { transport.all_gather(parts); });
}

void Communicator::all_reduce_max(const Tensor& values) {
  in_order([values](Transport& transport) { transport.all_reduce_max(values); });
}

// --- host memory ---------------------------------------------------------------------------------

void Communicator::gather_host(std::span<const std::byte> mine, std::span<std::byte> all) {
  wait(run([=](Transport& transport) { transport.gather_host(mine, all); }));
}

std::vector<int64_t> Communicator::gather_numbers(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(size()));
  gather_host(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

// Gathers the lengths first, then the texts, padded to the longest.
std::vector<std::string> Communicator::gather_texts(std::string_view mine) {
  const std::vector<int64_t> sizes = gather_numbers(std::ssize(mine));
  const auto longest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::string> texts(sizes.size());
  if (longest == 0) return texts;
  std::string padded(mine), all(longest * sizes.size(), '\0');
  padded.resize(longest);
  gather_host(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  for (size_t of = 0; of < texts.size(); ++of)
    texts[of] = all.substr(of * longest, static_cast<size_t>(sizes[of]));
  return texts;
}

// --- failures ------------------------------------------------------------------------------------

void Communicator::together(const std::function<void()>& work) {
  if (is_single()) return work();
  std::string failure;
  try {
    work();
  } catch (const Error& caught) {
    failure = fmt::format("rank {}: {}", rank(), caught.what());
  }
  throw_first(gather_texts(failure));
}

void Communicator::throw_first(const std::vector<std::string>& failures) const {
  const auto first = std::ranges::find_if(failures, [](const auto& text) { return !text.empty(); });
  if (first == failures.end()) return;
  if (first - failures.begin() == rank()) throw Error(*first);
  throw RelayedError(*first);
}

void Communicator::or_abort(const std::function<void()>& work) {
  if (is_single()) return work();
  try {
    work();
  } catch (const RelayedError& failure) {
    if (transport_->abort_ends_all() || !one_machine_) spdlog::error("{}", failure.what());
    spdlog::debug("rank {} of {}: {}", rank(), size(), failure.what());
    transport_->abort(failure.what());
    throw ReportedError(failure.what());
  } catch (const std::exception& failure) {
    const std::string told = fmt::format("rank {} of {}: {}", rank(), size(), failure.what());
    spdlog::error("{}", told);
    transport_->abort(failure.what());
    if (dynamic_cast<const Error*>(&failure) != nullptr) throw ReportedError(told);
    throw;
  }
}

}  // namespace mpt
