// Choosing a backend, and the error if one is missing.
#include "device/backends.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace mpt {
namespace {

TEST(Backends, TheCpuIsAlwaysThere) {
  EXPECT_EQ(why_unavailable({.backend = Backend::kCpu}), "");
  EXPECT_EQ(make_device({.backend = Backend::kCpu, .threads = 1})->backend(), Backend::kCpu);
  EXPECT_EQ(make_planning_device({.backend = Backend::kCpu, .threads = 1})->backend(),
            Backend::kCpu);
}

TEST(Backends, CudaIsThereOrItIsSaidWhyNot) {
  const std::string why = why_unavailable({.backend = Backend::kCuda});
  EXPECT_EQ(available_backend(), why.empty() ? Backend::kCuda : Backend::kCpu);
  if (why.empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_ERROR(make_device({.backend = Backend::kCuda}), why);
  const bool built_in = why.find("built without CUDA") == std::string::npos;
  if (built_in) {
    EXPECT_EQ(make_planning_device({.backend = Backend::kCuda})->backend(), Backend::kCuda);
  } else {
    EXPECT_ERROR(make_planning_device({.backend = Backend::kCuda}), why);
  }
}

}  // namespace
}  // namespace mpt
