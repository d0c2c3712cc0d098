#include "ranks/tcp_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/check.h"

namespace mpt {
namespace {

constexpr int kBacklog = 1024;

TcpSocket opened(int family) {
  return TcpSocket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Waits for one of `events`; false on timeout.
bool wait_for(int descriptor, short events, Deadline deadline) {
  pollfd waiting{.fd = descriptor, .events = events, .revents = 0};
  for (;;) {
    const int ready = ::poll(&waiting, 1, milliseconds_left(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// Returns the errno of the attempt; 0 on success.
int connect_to(const TcpSocket& socket, const addrinfo& address, Deadline deadline) {
  if (::connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket.descriptor(), POLLOUT, deadline)) return ETIMEDOUT;
  int fault = 0;
  socklen_t length = sizeof fault;
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &fault, &length);
  return fault;
}

// An IPv6 socket also accepts IPv4 connections, if the machine has IPv6.
bool bind_to(const TcpSocket& socket, int family, int port) {
  const int yes = 1, no = 0;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (family == AF_INET) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    return ::bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
  }
  ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<uint16_t>(port));
  return ::bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

struct LocalEnd {
  std::string address;  // numeric
  int port;
};
LocalEnd local_end(int descriptor) {
  sockaddr_storage end{};
  socklen_t length = sizeof end;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const address = reinterpret_cast<sockaddr*>(&end);
  if (::getsockname(descriptor, address, &length) != 0 ||
      ::getnameinfo(address, length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw error("a socket has no local address: {}", std::strerror(errno));
  return {host.data(), std::atoi(port.data())};
}

}  // namespace

int milliseconds_left(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

TcpSocket TcpSocket::listening(int port) {
  for (const int family : {AF_INET6, AF_INET}) {
    TcpSocket socket = opened(family);
    if (socket.descriptor() < 0) continue;
    const bool bound = bind_to(socket, family, port);
    if (bound && ::listen(socket.descriptor(), kBacklog) == 0) return socket;
    if (family == AF_INET6 && errno == EADDRNOTAVAIL) continue;
    break;
  }
  throw error("cannot listen on port {}: {}", port, std::strerror(errno));
}

std::optional<TcpSocket> TcpSocket::connected(const std::string& address, int port,
                                              Deadline deadline, std::string& reason) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int fault = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (fault != 0) {
    reason = ::gai_strerror(fault);
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    TcpSocket socket = opened(one->ai_family);
    const int error_number = socket.descriptor() < 0 ? errno : connect_to(socket, *one, deadline);
    if (error_number == 0) return socket;
    reason = std::strerror(error_number);
  }
  return std::nullopt;
}

std::optional<TcpSocket> TcpSocket::accepted() const {
  const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  return TcpSocket(descriptor);
}

bool TcpSocket::send(std::span<const std::byte> bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes = bytes.subspan(size_t(sent));
    if (sent > 0 || (sent < 0 && errno == EINTR)) continue;
    if (errno != EAGAIN || !wait_for(descriptor_, POLLOUT, deadline)) return false;
  }
  return true;
}

bool TcpSocket::receive_available(std::string& text, size_t most) const {
  std::array<char, 4096> buffer;
  while (text.size() < most) {
    const size_t wanted = std::min(buffer.size(), most - text.size());
    const ssize_t count = ::recv(descriptor_, buffer.data(), wanted, 0);
    if (count > 0) text.append(buffer.data(), size_t(count));
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    return count < 0 && errno == EAGAIN;
  }
  return true;
}

std::optional<std::string> TcpSocket::receive(size_t bytes, Deadline deadline) const {
  std::string text;
  while (text.size() < bytes)
    if (!wait_readable(deadline) || !receive_available(text, bytes)) break;
  return text.size() == bytes ? std::optional(std::move(text)) : std::nullopt;
}

std::string TcpSocket::local_address() const {
  const std::string numeric = local_end(descriptor_).address;
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 on an IPv6 socket
  return numeric.starts_with(kMapped) ? numeric.substr(kMapped.size()) : numeric;
}

int free_port() { return local_end(TcpSocket::listening(0).descriptor()).port; }

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool TcpSocket::wait_readable(Deadline deadline) const {
  return wait_for(descriptor_, POLLIN, deadline);
}

}  // namespace mpt
