// A program linked with the CUDA objects can make every family of operations on CUDA.
#include "device/ops_registry.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cuda/gpu.h"
#include "model/llama_ops.h"
#include "optim/update/optimizer_ops.h"
#include "precision/codec_ops.h"
#include "precision/fp8_ops.h"

namespace mpt {
namespace {

template <class... Ops>
struct Families {
  static std::set<std::string> names() { return {std::string(Ops::kFamily)...}; }
  static std::set<std::string> without_maker() {
    std::set<std::string> missing;
    (...,
     (cuda_ops_maker<Ops>() == nullptr ? void(missing.insert(std::string(Ops::kFamily))) : void()));
    return missing;
  }
};
using AllFamilies = Families<Fp8Ops, LlamaOps, CodecOps, OptimizerOps>;

std::set<std::string> families_in_sources(const std::filesystem::path& sources) {
  const std::regex family(R"rx(kFamily = "([^"]+)")rx");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sources)) {
    if (entry.path().extension() != ".h" || entry.path().filename() == "ops_registry.h") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::sregex_iterator it(text.begin(), text.end(), family), end; it != end; ++it)
      names.insert((*it)[1]);
  }
  return names;
}

TEST(OpsRegistry, EveryFamilyOfTheSourcesHasACudaMaker) {
  EXPECT_EQ(AllFamilies::without_maker(), std::set<std::string>{});
  const std::filesystem::path sources = test::source_directory() / "src";
  if (!std::filesystem::exists(sources)) GTEST_SKIP() << sources << " is not on this machine";
  EXPECT_EQ(AllFamilies::names(), families_in_sources(sources));
}

}  // namespace
}  // namespace mpt
