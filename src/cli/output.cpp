#include "cli/output.h"

#include <cerrno>
#include <cstring>
#include <iostream>

#include <poll.h>
#include <unistd.h>

#include "core/check.h"

namespace mpt {
namespace {

bool reader_has_gone() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace

bool write_output(std::string_view text) {
  std::cout.flush();
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EPIPE) return false;
    if (written < 0 && errno != EINTR)
      throw error("standard output cannot be written: {}", std::strerror(errno));
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void finish_output() {
  std::cout.flush();
  if (!std::cout && !reader_has_gone()) throw error("standard output cannot be written");
}

}  // namespace mpt
