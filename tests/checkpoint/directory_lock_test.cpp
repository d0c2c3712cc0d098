// At most one writer per directory.
#include "core/io/directory_lock.h"

#include <csignal>
#include <optional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file_system.h"
#include "support/expect_error.h"
#include "support/rank_threads.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

TEST(DirectoryLock, IsHeldByOneAndReleased) {
  const test::TempDirectory directory;
  {
    const DirectoryLock lock(directory.path());
    EXPECT_ERROR(DirectoryLock(directory.path()), directory.path(),
                 fmt::format("process {}", ::getpid()));
    EXPECT_ERROR(DirectoryLock(directory.path()), "another run");
  }
  const DirectoryLock again(directory.path());
}

TEST(DirectoryLock, IsReleasedWhenItsProcessIsKilled) {
  const test::TempDirectory directory;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const DirectoryLock lock(directory.path());
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_ERROR(DirectoryLock(directory.path()), fmt::format("process {}", child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  const DirectoryLock lock(directory.path());
}

// A killed process's leftover means nothing: not its process ID, nor that a process with that ID is
// alive.
TEST(DirectoryLock, AStaleFileNeverBlocks) {
  const test::TempDirectory directory;
  for (const std::string text : {"1\n", "", "not a number", "99999999999999999999\n"}) {
    write_file_atomically(posix_file_system(), directory / ".lock", bytes_of(text));
    const DirectoryLock lock(directory.path());
    EXPECT_EQ(posix_file_system().read_file(directory / ".lock"), fmt::format("{}\n", ::getpid()));
  }
}

// The first of several ranks takes the lock; if it is refused, all of them learn why.
TEST(DirectoryLock, IsTakenByOneRankForAll) {
  const test::TempDirectory directory;
  const auto lock_together = [&](Communicator& group) {
    std::optional<DirectoryLock> lock;
    group.together([&] {
      if (group.rank() == 0) lock.emplace(directory.path());
    });
    static_cast<void>(group.gather_numbers(0));  // held until all have continued
  };
  test::RankThreads(3).run(lock_together);
  const DirectoryLock other(directory.path());
  test::RankThreads(3).run([&](Communicator& group) {
    EXPECT_ERROR(lock_together(group), "rank 0", "another run is writing here",
                 fmt::format("process {}", ::getpid()));
  });
}

TEST(DirectoryLock, NamesWhatItCannotOpen) {
  const test::TempDirectory directory;
  EXPECT_ERROR(DirectoryLock(directory / "none"), directory / "none/.lock", "No such file");
  posix_file_system().create_directory(directory / ".lock");
  EXPECT_ERROR(DirectoryLock(directory.path()), directory / ".lock", "Is a directory");
}

}  // namespace
}  // namespace mpt
