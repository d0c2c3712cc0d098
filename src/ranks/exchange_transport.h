// Collectives made of messages between pairs of ranks, for tensors in host memory. A library (MPI,
// Gloo) moves the messages; everything else is here, so that sums have the same bits over each.
//
// Each rank sends the others their parts and adds what it receives in rank order. A rank that does
// not arrive is named: waits have a deadline since the last arrival, so a hanging rank cannot block
// the others forever.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ranks/transport.h"

namespace mpt {

struct ExchangeOptions {
  int64_t rank = 0, size = 1;
  // Maximum time without any message arriving, since the call began or since the last arrival.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  int64_t piece_bytes = int64_t{1} << 26;  // largest message; longer parts take several
};

// A set of concurrent messages between this rank and others, with a common wait. Unfinished ones
// are cancelled on destruction.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Messages to and from a rank match in the order of these calls.
  virtual void send(std::span<const std::byte> bytes, int64_t rank) = 0;
  virtual void receive(std::span<std::byte> bytes, int64_t rank) = 0;
  // Throws if no message arrives within the timeout (naming the ranks waited for), if the library
  // reports an error, or if a message's size differs from what the receiver expects.
  virtual void wait() = 0;
};

class ExchangeTransport : public Transport {
 public:
  explicit ExchangeTransport(const ExchangeOptions& options)
      : Transport(options.rank, options.size), options_(options) {}

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) final;
  void all_gather(std::span<const Tensor> parts) final;
  void all_reduce_max(const Tensor& values) final;
  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) final;
  void broadcast_host(std::span<std::byte> bytes, int64_t root) final;
  void barrier() final;
  [[nodiscard]] int64_t bytes_sent() const final { return sent_; }

 protected:
  // number: equal on all ranks, one more for each exchange. name: for errors, "all_gather".
  virtual std::unique_ptr<Exchange> begin(int64_t number, const std::string& name) = 0;
  [[nodiscard]] const ExchangeOptions& options() const { return options_; }

  // Waits for all ranks to get here, so that no rank mistakes another's end of run for a barrier.
  // Returns false, without waiting, after a failure or while an exception is in flight: other ranks
  // may never arrive.
  bool meet_at_end();
  // For abort(), which another thread may call: makes waits end, by cancelled() and wake(), and
  // returns a lock that is held once the call in progress has ended, or once it has had time to.
  std::unique_lock<std::timed_mutex> cancel();
  virtual void wake() {}
  [[nodiscard]] const std::atomic<bool>& cancelled() const { return cancelled_; }

 private:
  enum class Meeting : uint8_t { kBarrier = 1, kEnd = 2 };
  static const char* name_of(Meeting meeting);
  void meet(Meeting meeting);
  void run(const char* name, const std::function<void(Exchange&)>& post);
  // Receives incoming(rank) from, and sends outgoing(rank) to, every other rank.
  template <class Incoming, class Outgoing>
  void run_with_others(const char* name, const Incoming& incoming, const Outgoing& outgoing);
  std::vector<Tensor> staged_copies(const Tensor& own);
  template <class F>
  void for_others(const F& f) const;

  ExchangeOptions options_;
  const int exceptions_ = std::uncaught_exceptions();
  int64_t exchanges_ = 0;
  int64_t sent_ = 0;
  std::exception_ptr failure_;
  std::timed_mutex in_call_;  // for cancel(): calls come from one thread at a time
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<std::byte[]> staging_;
  size_t staging_bytes_ = 0;
};

// Calls f(piece) for consecutive pieces of at most `piece_bytes` bytes.
template <class Byte, class F>
void for_pieces(std::span<Byte> bytes, int64_t piece_bytes, const F& f) {
  for (size_t first = 0; first < bytes.size(); first += size_t(piece_bytes))
    f(bytes.subspan(first, std::min(bytes.size() - first, size_t(piece_bytes))));
}

}  // namespace mpt
