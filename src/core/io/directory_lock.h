// Prevents two processes from writing to the same directory.
#pragma once

#include <string>

namespace mpt {

inline constexpr const char* kLockFile = ".lock";

// Advisory lock on the directory's kLockFile, released however the process ends. The file remains
// and holds the process id of its last holder.
class DirectoryLock {
 public:
  // `directory` must exist. Throws Error naming the holder if another process, or another
  // DirectoryLock, holds the lock.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace mpt
