// How ranks that no MPI brings together begin: rank 0 listens on a TCP port, the others come to it, and when
// all are there it gives each the same bytes (NCCL's id).
//
// Nothing is written to a file, so there is nothing of an earlier run to be mistaken for this one's; a
// process of another run that comes, or that still listens there, is told apart by the run's id.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

namespace mpt {

// A TCP connection or a listening port, closed when it goes; every wait has a deadline.

using Deadline = std::chrono::steady_clock::time_point;

class TcpSocket {
 public:
  explicit TcpSocket(int descriptor = -1) : descriptor_(descriptor) {}
  ~TcpSocket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  TcpSocket(TcpSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  // On all of this machine's addresses. Throws Error where the port is taken.
  static TcpSocket listening(int port);
  // Nothing where nobody answers; why not is in `reason`.
  static std::optional<TcpSocket> connected(const std::string& address, int port, Deadline deadline,
                                            std::string& reason);

  [[nodiscard]] int descriptor() const { return descriptor_; }
  // The next connection, if there is one.
  [[nodiscard]] std::optional<TcpSocket> accepted() const;
  // Whether all was sent before the deadline.
  [[nodiscard]] bool send(std::span<const std::byte> bytes, Deadline deadline) const;
  // Appends what is there now; false when the other side has closed.
  [[nodiscard]] bool receive_available(std::string& text) const;
  // Whether there is something to receive (or to accept) before the deadline.
  [[nodiscard]] bool wait_readable(Deadline deadline) const;

 private:
  int descriptor_;
};

// For poll(): milliseconds that are left, none below 0.
int milliseconds_left(Deadline deadline);

struct RendezvousOptions {
  int64_t rank = 0, size = 1;
  std::string address{};  // of rank 0's machine: a name or a number
  int port = 0;
  std::string run_id{};  // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Rank 0's `bytes` become everyone's. Throws Error on all ranks that got so far, saying why: ranks that did
// not come in time, a rank that came twice or is none of this run's, another number of ranks, a port that is
// taken or where something else answers.
void share_bytes_of_rank_0(std::span<std::byte> bytes, const RendezvousOptions& options);

}  // namespace mpt
