#include "core/io/directory_lock.h"

#include <array>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io/file_system.h"

namespace mpt {
namespace {

std::string text_of(int file) {
  std::array<char, 32> text{};
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  std::string line(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
  return line.substr(0, line.find_first_not_of("0123456789"));
}

[[noreturn]] void refuse(const std::string& directory, const std::string& path, int file) {
  const int code = errno;
  const std::string holder = text_of(file);
  ::close(file);
  if (code != EWOULDBLOCK) {
    throw error("{}: cannot be locked: {}", path, std::generic_category().message(code));
  }
  throw error("{}: another run is writing here (process {}); stop it or use another directory",
              directory, holder.empty() ? "unknown" : holder);
}

int lock_nonblocking(int file) {
  int result = -1;
  do result = ::flock(file, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = in_directory(directory, kLockFile);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0)
    throw error("{}: cannot be opened: {}", path, std::generic_category().message(errno));
  if (lock_nonblocking(file) != 0) refuse(directory, path, file);
  file_ = file;
  const std::string text = fmt::format("{}\n", ::getpid());
  // The process id is only for another run's error message, so failing to write it is not an error.
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, text.data(), text.size(), 0) < 0) return;
}

DirectoryLock::~DirectoryLock() { ::close(file_); }

}  // namespace mpt
