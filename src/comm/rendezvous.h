// Rendezvous of ranks without MPI: rank 0 listens on a TCP port, the others connect, and once all
// are there rank 0 sends each the same bytes (NCCL's id).
//
// No files are involved, so nothing left by an earlier run can be mistaken for this one. A process
// of another run, connecting or still listening, is detected by the run id.
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

// A TCP connection or listening port, closed on destruction. Every wait has a deadline.

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

  // Listens on all addresses of this machine. Throws Error if the port is taken.
  static TcpSocket listening(int port);
  // Returns nothing if nobody answers, with the cause in `reason`.
  static std::optional<TcpSocket> connected(const std::string& address, int port, Deadline deadline,
                                            std::string& reason);

  [[nodiscard]] int descriptor() const { return descriptor_; }
  // The next pending connection, if any.
  [[nodiscard]] std::optional<TcpSocket> accepted() const;
  // Returns whether everything was sent before the deadline.
  [[nodiscard]] bool send(std::span<const std::byte> bytes, Deadline deadline) const;
  // Appends the bytes available now until `text` has `most` of them, so that a peer cannot make it
  // grow without end; false once the peer has closed.
  [[nodiscard]] bool receive_available(std::string& text, size_t most) const;
  // Returns whether data (or a connection to accept) arrived before the deadline.
  [[nodiscard]] bool wait_readable(Deadline deadline) const;

 private:
  int descriptor_;
};

// Milliseconds until the deadline for poll(), at least 0.
int milliseconds_left(Deadline deadline);

struct RendezvousOptions {
  int64_t rank = 0, size = 1;
  std::string address{};  // rank 0's machine: host name or IP address
  int port = 0;
  std::string run_id{};  // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Copies rank 0's `bytes` to all ranks. Throws Error with the reason on all ranks that got this
// far: ranks missing at the timeout, a duplicate or invalid rank, a different number of ranks, a
// port that is taken, or something else answering there.
void share_bytes_of_rank_0(std::span<std::byte> bytes, const RendezvousOptions& options);

}  // namespace mpt
