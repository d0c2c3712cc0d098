// The operating system's file system, its failures, and the atomic replacement of a file.
#include "core/io/file_system.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/hash.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using test::Fault;
using test::FaultFileSystem;
using test::TempDirectory;
using test::UnsyncedRenames;

void write(const std::string& path, std::string_view text) {
  const auto file = disk.create(path);
  file->append(bytes_of(text));
  file->close();
}

// Limits the size of files during its lifetime: a miniature full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(FileSystem, WritesAppendsAndReadsBack) {
  const TempDirectory directory;
  const std::string path = directory / "a";
  write(path, "one");
  const auto file = disk.open_append(path);
  file->append(bytes_of(" two"));
  file->append({});
  file->sync();
  file->close();
  EXPECT_EQ(disk.read_file(path), "one two");
  EXPECT_EQ(disk.file_size(path), 7);
  write(path, "");
  EXPECT_EQ(disk.read_file(path), "");
  EXPECT_EQ(disk.file_size(path), 0);
}

TEST(FileSystem, WhatExistsCanBeAppendedToAndOverwritten) {
  const TempDirectory directory;
  const std::string path = directory / "a";
  EXPECT_ERROR(disk.open_existing(path), path, "No such file");
  write(path, "one");
  const auto file = disk.open_existing(path);
  file->append(bytes_of(" two"));
  file->overwrite(0, bytes_of("O"));
  file->append(bytes_of("."));
  file->close();
  EXPECT_EQ(disk.read_file(path), "One two.");
}

TEST(FileSystem, WhatIsAppendedFollowsTheEndThatTheFileHas) {
  const TempDirectory directory;
  const std::string path = directory / "a";
  write(path, "one");
  const auto file = disk.open_append(path);
  file->append(bytes_of(" tw"));
  disk.truncate(path, 3);
  file->append(bytes_of(" two"));
  file->close();
  EXPECT_EQ(disk.read_file(path), "one two");
}

TEST(FileSystem, ReadsRangesAndRefusesTheEnd) {
  const TempDirectory directory;
  write(directory / "a", "0123456789");
  const auto file = disk.open_read(directory / "a");
  std::string part(4, '\0');
  file->read(6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "6789");
  EXPECT_ERROR(file->read(7, std::as_writable_bytes(std::span(part))), directory / "a",
               "ends at byte 10");
}

TEST(FileSystem, ErrorsNameThePathAndTheReason) {
  const TempDirectory directory;
  const std::string missing = directory / "no/such";
  EXPECT_ERROR(disk.create(missing), missing, "No such file");
  EXPECT_ERROR(disk.open_append(directory.path()), directory.path(), "Is a directory");
  EXPECT_ERROR(disk.open_read(missing), missing, "cannot be opened for reading", "No such file");
  EXPECT_ERROR(disk.read_file(directory.path()), directory.path(),
               "is a directory; expected a file");
  EXPECT_ERROR(disk.truncate(missing, 0), missing, "No such file");
  EXPECT_ERROR(disk.list_directory(missing), missing, "No such file");
  EXPECT_ERROR(disk.create_directory(missing), missing, "No such file");
  EXPECT_ERROR(disk.remove_file(missing), missing, "No such file");
  EXPECT_ERROR(disk.remove_directory(missing), missing, "No such file");
  EXPECT_ERROR(disk.rename(missing, directory / "b"), missing, directory / "b", "No such file");
  EXPECT_ERROR(disk.sync_directory(missing), missing, "No such file");
  write(directory / "big", "12345");
  EXPECT_ERROR(disk.read_file(directory / "big", 4), directory / "big", "5 bytes", "4 accepted");
  EXPECT_ERROR(disk.create_directories(directory / "big/inside"), directory / "big",
               "not a directory");
}

TEST(FileSystem, PipeIsAnErrorNotAHang) {
  const TempDirectory directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(disk.kind(pipe), FileKind::kOther);
  EXPECT_ERROR(disk.open_read(pipe), pipe, "not a regular file");
  EXPECT_ERROR(disk.create(pipe), pipe, "cannot be opened for writing");
}

TEST(FileSystem, LinksAreFollowedToWhatIsWritten) {
  const TempDirectory directory;
  std::filesystem::create_symlink("b", directory / "a");
  std::filesystem::create_symlink(directory / "c", directory / "b");
  EXPECT_EQ(followed(directory / "a"), directory / "c");  // missing
  EXPECT_EQ(followed("/dev/stdout"), "/proc/self/fd/1");
  EXPECT_EQ(followed("/dev/fd/7"), "/dev/fd/7");
  std::filesystem::create_symlink("loop", directory / "loop");
  EXPECT_ERROR(followed(directory / "loop"), "loop", "form a loop");
  for (const char* name : {"/dev/fd/", "/dev/fd/1a", "/dev/fdx/1", "fd/1"})
    EXPECT_FALSE(names_descriptor(name)) << name;
}

// More than a pipe holds, so that a write must wait for the reader.
TEST(FileSystem, AStreamTakesAllThatIsWritten) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  ASSERT_EQ(::fcntl(ends[0], F_SETFL, 0), 0);
  const std::string sent(size_t{1} << 20, 'x');
  std::jthread writer([&] {
    const auto file = disk.open_stream(fmt::format("/dev/fd/{}", ends[1]));
    file->append(bytes_of(sent));
    file->sync();
    file->close();
    ::close(ends[1]);
  });
  std::string got;
  char buffer[65536];
  for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    got.append(buffer, size_t(count));
  ::close(ends[0]);
  EXPECT_EQ(got, sent);
}

TEST(FileSystem, FullDiskIsAnError) {
  if (!disk.exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto file = disk.open_append("/dev/full");
  EXPECT_ERROR(file->append(bytes_of("x")), "/dev/full", "No space left");
}

TEST(FileSystem, ShortWriteIsContinuedUntilItFails) {
  const TempDirectory directory;
  const std::string path = directory / "a";
  const std::string text(1500, 'x');
  {
    const FileSizeLimit limit(1000);
    const auto file = disk.create(path);
    EXPECT_ERROR(file->append(bytes_of(text)), path, "File too large");
  }
  EXPECT_EQ(disk.file_size(path), 1000);  // the first, short write
}

TEST(FileSystem, KindsAndLinks) {
  const TempDirectory directory;
  write(directory / "file", "x");
  ASSERT_EQ(::symlink((directory / "file").c_str(), (directory / "link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", (directory / "dangling").c_str()), 0);
  EXPECT_EQ(disk.kind(directory / "file"), FileKind::kRegular);
  EXPECT_EQ(disk.kind(directory / "link"), FileKind::kRegular);
  EXPECT_EQ(disk.kind(directory / "dangling"), FileKind::kMissing);
  EXPECT_EQ(disk.kind(directory / "file/below"), FileKind::kMissing);
  EXPECT_EQ(disk.kind(directory.path()), FileKind::kDirectory);
  EXPECT_TRUE(disk.is_link(directory / "link"));
  EXPECT_TRUE(disk.is_link(directory / "dangling"));
  EXPECT_FALSE(disk.is_link(directory / "file"));
  EXPECT_EQ(disk.list_directory(directory.path()),
            (std::vector<std::string>{"dangling", "file", "link"}));
}

TEST(FileSystem, ALinkThatLeadsNowhereIsNoMissingFile) {
  const TempDirectory directory;
  const std::string file = directory / "file", link = directory / "link";
  EXPECT_FALSE(has_optional_file(disk, link));
  EXPECT_FALSE(has_reachable_file(link));
  std::filesystem::create_symlink("file", link);
  EXPECT_ERROR(has_optional_file(disk, link),
               link + ": is a symbolic link to file, which does not");
  EXPECT_ERROR(has_reachable_file(link), link + ": is a symbolic link to file");
  write(file, "there");
  EXPECT_TRUE(has_optional_file(disk, link));
  EXPECT_TRUE(has_reachable_file(link));
}

TEST(FileSystem, CreatesAndRemovesTrees) {
  const TempDirectory directory;
  disk.create_directories(directory / "a/b/c/");
  disk.create_directories(directory / "a/b/c");
  write(directory / "a/b/file", "x");
  write(directory / "outside", "kept");
  ASSERT_EQ(::symlink(directory.path().c_str(), (directory / "a/b/link").c_str()), 0);
  disk.remove_tree(directory / "a");
  EXPECT_EQ(disk.list_directory(directory.path()), std::vector<std::string>{"outside"});
  disk.remove_tree(directory / "a");
  disk.remove_tree(directory / "outside");
  EXPECT_TRUE(disk.list_directory(directory.path()).empty());
}

TEST(FileSystem, ParentDirectories) {
  EXPECT_EQ(parent_directory("a/b"), "a");
  EXPECT_EQ(parent_directory("a/b//"), "a");
  EXPECT_EQ(parent_directory("b"), ".");
  EXPECT_EQ(parent_directory("/b"), "/");
  EXPECT_EQ(parent_directory("/"), "/");
  EXPECT_EQ(parent_directory(""), ".");
}

TEST(FileSystem, WithoutSlashesAtTheEnd) {
  EXPECT_EQ(without_slashes("a/b//"), "a/b");
  EXPECT_EQ(without_slashes("/a"), "/a");
  EXPECT_EQ(without_slashes("//"), "/");
  EXPECT_EQ(without_slashes(""), "");
}

TEST(FileSystem, RemoveQuietlyOnlyLogsAFailure) {
  const TempDirectory directory;
  write(directory / "a", "x");
  const test::CapturedLog log;
  remove_quietly(disk, directory / "a");
  remove_quietly(disk, directory / "a");
  EXPECT_FALSE(disk.exists(directory / "a"));
  EXPECT_EQ(log.text(), "");
  FaultFileSystem failing(disk);
  write(directory / "b", "x");
  failing.fail_at(1, Fault::kError);
  remove_quietly(failing, directory / "b");
  EXPECT_TRUE(log.has(directory / "b: left behind: ")) << log.text();
}

TEST(FileSystem, HashesInPieces) {
  const TempDirectory directory;
  std::string text((size_t{4} << 20) + 3, 'y');
  text[size_t{4} << 20] = 'z';
  write(directory / "a", text);
  write(directory / "empty", "");
  EXPECT_EQ(hash_file(disk, directory / "a"), hash_bytes(bytes_of(text)));
  EXPECT_EQ(hash_file(disk, directory / "empty"), hash_bytes({}));
}

class AtomicWrite : public testing::TestWithParam<Fault> {};

// Whichever operation fails or is the last one, the file holds the old text or the new one.
TEST_P(AtomicWrite, LeavesOldOrNew) {
  const std::string old_text(100, 'o'), new_text(200, 'n');
  int64_t broken = 0;
  for (int64_t n = 1;; ++n) {
    const TempDirectory directory;
    const std::string path = directory / "file";
    FaultFileSystem faulty(disk);
    write_file_atomically(faulty, path, bytes_of(old_text));
    faulty.fail_at(n, GetParam());
    bool threw = false;
    try {
      write_file_atomically(faulty, path, bytes_of(new_text));
    } catch (const Error&) {
      threw = true;
    }
    if (!faulty.broke()) {
      EXPECT_FALSE(threw);
      EXPECT_EQ(disk.read_file(path), new_text);
      break;
    }
    ++broken;
    EXPECT_TRUE(threw);
    const std::string found = disk.read_file(path);
    EXPECT_TRUE(found == old_text || found == new_text) << "after operation " << n;
    const bool process_lives = GetParam() == Fault::kError || GetParam() == Fault::kShortWrite;
    if (process_lives) {
      EXPECT_EQ(disk.list_directory(directory.path()), std::vector<std::string>{"file"});
    }
  }
  EXPECT_EQ(broken, 6);  // create, append, sync, close, rename, sync of the directory
}
INSTANTIATE_TEST_SUITE_P(Faults, AtomicWrite,
                         testing::Values(Fault::kError, Fault::kShortWrite, Fault::kStop,
                                         Fault::kStopShort));

TEST(FileSystem, AtomicWriteSurvivesAPowerCutAfterAnyOperation) {
  const std::string old_text(100, 'o'), new_text(200, 'n');
  for (const auto renames : {UnsyncedRenames::kKept, UnsyncedRenames::kUndone}) {
    for (int64_t n = 1; n <= 7; ++n) {
      const TempDirectory directory;
      const std::string path = directory / "file";
      FaultFileSystem faulty(disk);
      write_file_atomically(faulty, path, bytes_of(old_text));
      faulty.fail_at(n, Fault::kStop);
      bool threw = false;
      try {
        write_file_atomically(faulty, path, bytes_of(new_text));
      } catch (const Error&) {
        threw = true;
      }
      faulty.drop_unsynced(renames);
      const std::string found = disk.read_file(path);
      EXPECT_TRUE(found == new_text || (threw && found == old_text)) << "after operation " << n;
    }
  }
}

TEST(FileSystem, AtomicWriteNamesThePathItCannotWrite) {
  const TempDirectory directory;
  EXPECT_ERROR(write_file_atomically(disk, directory / "no/file", {}), directory / "no/file",
               "No such file");
  EXPECT_ERROR(write_file_atomically(disk, directory.path(), {}), directory.path(),
               "is a directory");
}

}  // namespace
}  // namespace mpt
