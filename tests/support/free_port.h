// A free TCP port, for tests that run in parallel.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/check.h"

namespace mpt::test {

// The system chooses the port; it is closed again immediately.
inline int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof any;
  const bool found = ::bind(descriptor, reinterpret_cast<sockaddr*>(&any), length) == 0 &&
                     ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&any), &length) == 0;
  ::close(descriptor);
  check(found, "the system has no free port");
  return ntohs(any.sin_port);
}

}  // namespace mpt::test
