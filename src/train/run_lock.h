// Keeps two processes from training in one directory: an advisory lock on its file ".lock", released when the
// process ends, however it ends. The file stays, with the process number of its last holder.
#pragma once

#include <string>

namespace mpt {

class RunLock {
 public:
  // The directory exists. An Error that names the holder if another process, or another RunLock, has the
  // lock.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace mpt
