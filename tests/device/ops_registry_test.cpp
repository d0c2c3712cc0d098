// make_ops(): the CPU's operations always exist, CUDA's if something registered them.
#include "device/ops_registry.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

// A family of one operation.
class NameOps {
 public:
  static constexpr std::string_view kFamily = "names";
  struct Options {
    std::string suffix{};
  };
  explicit NameOps(std::string called) : name(std::move(called)) {}
  std::string name;
};

}  // namespace

template <>
std::unique_ptr<NameOps> make_cpu_ops(const NameOps::Options& options) {
  return std::make_unique<NameOps>("cpu" + options.suffix);
}

namespace {

std::unique_ptr<NameOps> make_cuda(StreamRef /*stream*/, const NameOps::Options& options) {
  return std::make_unique<NameOps>("cuda" + options.suffix);
}

TEST(OpsRegistry, TheCpuNeedsNoRegistration) {
  EXPECT_EQ(make_ops<NameOps>({})->name, "cpu");
  EXPECT_EQ(make_ops<NameOps>({}, {.suffix = "!"})->name, "cpu!");
}

TEST(OpsRegistry, WhatIsNotRegisteredIsRefusedByName) {
  cuda_ops_maker<NameOps>() = nullptr;
  try {
    make_ops<NameOps>({.backend = Backend::kCuda});
    FAIL() << "made";
  } catch (const LogicError& refused) {
    EXPECT_STREQ(refused.what(), "no names for cuda");
  }
}

TEST(OpsRegistry, WhatIsRegisteredIsMade) {
  const RegisterCudaOps<NameOps> registered{make_cuda};
  EXPECT_EQ(make_ops<NameOps>({.backend = Backend::kCuda}, {.suffix = "?"})->name, "cuda?");
  EXPECT_EQ(make_ops<NameOps>({})->name, "cpu");
}

}  // namespace
}  // namespace mpt
