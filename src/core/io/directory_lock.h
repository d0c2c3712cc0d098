// Keeps two processes from writing to one directory.
#pragma once

#include <string>

namespace mpt {

inline constexpr const char* kLockFile = ".lock";

// An advisory lock on the directory's kLockFile, released however the process ends. The file stays
// and holds the process id of its last holder.
class DirectoryLock {
 public:
  // `directory` must exist. Throws Error naming the holder if another process, or another
  // DirectoryLock, has the lock.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace mpt
