// One run a directory.
#include "train/run_lock.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file_system.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

TEST(RunLock, IsHeldByOneAndReleased) {
  const test::TempDirectory directory;
  {
    const RunLock lock(directory.path());
    EXPECT_ERROR(RunLock(directory.path()), directory.path(), fmt::format("process {}", ::getpid()));
    EXPECT_ERROR(RunLock(directory.path()), "another run");
  }
  const RunLock again(directory.path());
}

TEST(RunLock, IsReleasedWhenItsProcessIsKilled) {
  const test::TempDirectory directory;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock(directory.path());
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_ERROR(RunLock(directory.path()), fmt::format("process {}", child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  const RunLock lock(directory.path());
}

TEST(RunLock, NamesWhatItCannotOpen) {
  const test::TempDirectory directory;
  EXPECT_ERROR(RunLock(directory / "none"), directory / "none/.lock", "No such file");
  posix_file_system().create_directory(directory / ".lock");
  EXPECT_ERROR(RunLock(directory.path()), directory / ".lock", "Is a directory");
}

}  // namespace
}  // namespace mpt
