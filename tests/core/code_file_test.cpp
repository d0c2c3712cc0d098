// The file that contains the code: here the test itself, since the layers are linked into it.
#include "core/io/code_file.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

TEST(CodeFile, IsTheExecutableThatHoldsTheLayers) { EXPECT_EQ(code_file(), "/proc/self/exe"); }

}  // namespace
}  // namespace mpt
