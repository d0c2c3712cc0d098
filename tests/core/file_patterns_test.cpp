// Names and patterns of files: which files match, and that no file is silently dropped from a
// pattern.
#include "core/io/file_patterns.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "support/expect_error.h"
#include "support/files.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// Works in a directory with c/a/1.txt, c/a/2.txt and c/b/1.txt.
class FilePatterns : public ::testing::Test {
 protected:
  FilePatterns() : before_(fs::current_path()) {
    fs::permissions(directory_.path(), fs::perms::all);
    fs::current_path(directory_.path());
    for (const char* name : {"c/a/1.txt", "c/a/2.txt", "c/b/1.txt"}) write(name);
  }
  ~FilePatterns() override { fs::current_path(before_); }

  static void write(const std::string& name) {
    fs::create_directories(fs::absolute(name).parent_path());
    std::ofstream(name) << name;
  }

 private:
  test::TempDirectory directory_;
  fs::path before_;
};

// Drops root privileges during its lifetime, so that permissions apply.
class Unprivileged {
 public:
  Unprivileged() : before_(::setfsuid(kNobody)) {}
  ~Unprivileged() { ::setfsuid(before_); }

 private:
  static constexpr unsigned kNobody = 65534;
  unsigned before_;
};

TEST_F(FilePatterns, MatchAsInAShell) {
  for (const char* name : {"c/.hidden.txt", "c/a b", "[x].txt", "x.txt", "d*"}) write(name);
  EXPECT_EQ(expand_patterns({"c/*/*.txt"}), (Names{"c/a/1.txt", "c/a/2.txt", "c/b/1.txt"}));
  EXPECT_EQ(expand_patterns({"c//[!b]/?.txt"}), (Names{"c//a/1.txt", "c//a/2.txt"}));
  EXPECT_EQ(expand_patterns({"*/b/1.txt"}), (Names{"c/b/1.txt"}));
  EXPECT_EQ(expand_patterns({fs::current_path().string() + "/c/b/*"}),
            (Names{fs::current_path().string() + "/c/b/1.txt"}));
  EXPECT_EQ(expand_patterns({"c/.h*"}), (Names{"c/.hidden.txt"}));
  EXPECT_EQ(expand_patterns({R"(c/a\ b)"}), (Names{"c/a b"}));
  EXPECT_EQ(expand_patterns({R"(\[x].txt)"}), (Names{"[x].txt"}));
  EXPECT_EQ(expand_patterns({"[x].txt", "d*"}), (Names{"[x].txt", "d*"})) << "names themselves";
  EXPECT_EQ(expand_patterns({"c/b/*", "c/a/*"}), (Names{"c/b/1.txt", "c/a/1.txt", "c/a/2.txt"}));
}

TEST_F(FilePatterns, WithoutAMatchAreErrors) {
  for (const char* pattern : {"c/*.txt", "gone/*.txt", "c/a/1.txt/*", "c/*/3.txt", "gone", "c/["})
    EXPECT_ERROR(expand_patterns({pattern}), pattern, "no file matches it as a pattern");
  EXPECT_FALSE(names_a_file("gone/*"));
  EXPECT_TRUE(names_a_file("c/*/2.txt"));
}

TEST_F(FilePatterns, NameADirectoryThatCannotBeListed) {
  fs::permissions("c/b", fs::perms::none);
  const Unprivileged user;
  if (::access("c/b", R_OK) == 0 && ::geteuid() != 0) GTEST_SKIP() << "may list everything";
  for (const char* pattern : {"c/*/*.txt", "c/b/*.txt", "*/*/*"}) {
    EXPECT_ERROR(expand_patterns({pattern}), "c/b: cannot be listed: Permission denied");
    EXPECT_ERROR(names_a_file(pattern), "c/b: cannot be listed: Permission denied");
  }
  for (const char* pattern : {"c/*/1.txt", "c/b/1.txt"})
    EXPECT_ERROR(expand_patterns({pattern}), "c/b/1.txt: cannot be inspected: Permission denied");
  EXPECT_EQ(expand_patterns({"c/a/*"}), (Names{"c/a/1.txt", "c/a/2.txt"}))
      << "it is not on the way";
}

TEST_F(FilePatterns, RefuseAFileNamedTwice) {
  const std::string once = "c/a/1.txt", whole = fs::current_path().string() + "/" + once;
  EXPECT_ERROR(expand_patterns({once, once}), "c/a/1.txt: named twice (the second time by");
  for (const std::string& other : Names{"./" + once, "c/../" + once, "c//a/1.txt", whole}) {
    EXPECT_ERROR(expand_patterns({once, other}),
                 other + ": named twice, first as c/a/1.txt (the second time by '" + other + "')");
    EXPECT_EQ(expand_patterns({other}), Names{other});
  }
  fs::create_symlink("1.txt", "c/a/linked.txt");
  EXPECT_ERROR(expand_patterns({"c/a/*"}), "c/a/linked.txt: named twice, first as c/a/1.txt");
  fs::create_directory_symlink("a", "c/x");
  EXPECT_ERROR(expand_patterns({"c/*/2.txt"}), "c/x/2.txt: named twice, first as c/a/2.txt");
  fs::create_hard_link("c/b/1.txt", "c/b/2.txt");
  EXPECT_ERROR(expand_patterns({"c/b/*"}), "c/b/2.txt: named twice, first as c/b/1.txt");
}

TEST_F(FilePatterns, NameALinkThatLeadsNowhere) {
  fs::create_symlink("loop", "c/loop");
  EXPECT_ERROR(expand_patterns({"c/*/*.txt"}), "c/loop: cannot be inspected",
               "Too many levels of symbolic links");
  EXPECT_ERROR(expand_patterns({"c/*/1.txt"}), "c/loop/1.txt: cannot be inspected");
  fs::create_symlink("gone", "c/a/3.txt");
  for (const char* pattern : {"c/a/*", "c/[ab]/3.txt"})
    EXPECT_ERROR(expand_patterns({pattern}), "c/a/3.txt: no such file");
}

}  // namespace
}  // namespace mpt
