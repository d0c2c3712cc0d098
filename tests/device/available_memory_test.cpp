// Memory of a machine available under control groups, of both versions, in and outside containers.
#include "device/cpu/available_memory.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/temp_directory.h"

namespace mpt {
namespace {

class Groups : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = directory_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] std::optional<int64_t> left(const std::string& groups) const {
    return memory_left_by_groups(groups, directory_.path());
  }
  test::TempDirectory directory_;
};

TEST_F(Groups, WithoutALimitLeaveEverything) {
  EXPECT_EQ(left(""), std::nullopt);
  EXPECT_EQ(left("0::/\n"), std::nullopt);
  EXPECT_EQ(left("nonsense\n1:memory\n::\n"), std::nullopt);
  write("a/memory.max", "max\n");
  write("a/memory.current", "5\n");
  EXPECT_EQ(left("0::/a\n"), std::nullopt);
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(left("4:memory:/\n"), std::nullopt);
}

TEST_F(Groups, TheTightestOfThoseAboveCounts) {
  write("job/memory.max", "1000\n");
  write("job/memory.current", "400\n");
  write("job/step/memory.max", "max\n");
  write("job/step/memory.current", "300\n");
  EXPECT_EQ(left("0::/job/step\n"), 600);
  write("job/step/memory.max", "800\n");
  EXPECT_EQ(left("0::/job/step\n"), 500);
}

// Text that was read and is not in use.
TEST_F(Groups, ThePageCacheIsNotTaken) {
  write("memory.max", "1000\n");
  write("memory.current", "900\n");
  write("memory.stat", "anon 200\ninactive_file 700\nactive_file 0\n");
  EXPECT_EQ(left("0::/\n"), 800);
  write("memory.current", "1700\n");
  EXPECT_EQ(left("0::/\n"), 0);
}

TEST_F(Groups, OfVersionOneAndOfAContainer) {
  write("memory/memory.limit_in_bytes", "5000\n");  // of the container, whose path is the host's
  write("memory/memory.usage_in_bytes", "1000\n");
  write("memory/memory.stat", "total_inactive_file 500\n");
  EXPECT_EQ(left("5:cpu:/x\n4:hugetlb,memory:/docker/0123\n0::/\n"), 4500);
}

TEST(AvailableMemory, IsPositiveAndNoMoreThanThereIs) {
  EXPECT_GT(available_memory(), 0);
  EXPECT_LE(available_memory(), int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace mpt
