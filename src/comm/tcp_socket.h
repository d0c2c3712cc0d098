// A TCP connection or a listening port, closed when it goes; every wait has a deadline.
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

}  // namespace mpt
