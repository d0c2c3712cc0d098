// A TCP connection or listening port, closed on destruction. Every wait has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

namespace mpt {

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
  // Returns nullopt if nobody answers, with the cause in `reason`.
  static std::optional<TcpSocket> connected(const std::string& address, int port, Deadline deadline,
                                            std::string& reason);

  [[nodiscard]] int descriptor() const { return descriptor_; }
  // The next pending connection, if any.
  [[nodiscard]] std::optional<TcpSocket> accepted() const;
  // Returns whether everything was sent before the deadline.
  [[nodiscard]] bool send(std::span<const std::byte> bytes, Deadline deadline) const;
  // Appends the bytes available now until `text` has `most` of them, which bounds what a peer can
  // send; returns false once the peer has closed.
  [[nodiscard]] bool receive_available(std::string& text, size_t most) const;
  // Receives exactly `bytes` bytes; nullopt if the peer closes, or at the deadline.
  [[nodiscard]] std::optional<std::string> receive(size_t bytes, Deadline deadline) const;
  // This end's numeric address: what others on that network reach this machine by.
  [[nodiscard]] std::string local_address() const;
  // Returns whether data (or a connection to accept) arrived before the deadline.
  [[nodiscard]] bool wait_readable(Deadline deadline) const;

 private:
  int descriptor_;
};

// A port that no process listens on now, as the system chooses it.
int free_port();

// Whether only processes on this machine reach the numeric address: 127.0.0.1, 127.0.1.1, ::1.
bool is_loopback(const std::string& address);

// Milliseconds until the deadline for poll(), at least 0.
int milliseconds_left(Deadline deadline);

}  // namespace mpt
