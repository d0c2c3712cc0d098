// What ptxas reported of the kernels when they were built (cmake/keep_ptxas_report.sh): those of the
// optimizer and of the casts keep all they work on in registers.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mpt {
namespace {

namespace fs = std::filesystem;

struct FunctionResources {
  std::string function;  // mangled
  std::string architecture;
  int64_t stack = -1, spill_stores = -1, spill_loads = -1;  // bytes

  [[nodiscard]] bool in_registers() const { return stack == 0 && spill_stores == 0 && spill_loads == 0; }
};

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t from = text.find(before) + before.size();
  return text.substr(from, text.find(after, from) - from);
}

//   ptxas info    : Compiling entry function 'F' for 'sm_90a'
//   ptxas info    : Function properties for F
//       0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
std::vector<FunctionResources> read_report(std::istream& report) {
  std::vector<FunctionResources> functions;
  std::string architecture, function;
  for (std::string line; std::getline(report, line);) {
    if (line.find("Compiling entry function") != std::string::npos)
      architecture = between(line, "for '", "'");
    if (line.find("Function properties for ") != std::string::npos)
      function = between(line, "Function properties for ", "\n");
    FunctionResources found{.function = function, .architecture = architecture};
    long stack = 0, stores = 0, loads = 0;
    if (sscanf(line.c_str(), " %ld bytes stack frame, %ld bytes spill stores, %ld bytes spill loads", &stack,
               &stores, &loads) != 3)
      continue;
    found.stack = stack, found.spill_stores = stores, found.spill_loads = loads;
    functions.push_back(found);
  }
  return functions;
}

std::vector<FunctionResources> read_report(const std::string& text) {
  std::istringstream report(text);
  return read_report(report);
}

TEST(PtxasReport, StackAndSpillsOfEveryFunctionAreRead) {
  const auto functions = read_report(
      "ptxas info    : 24 bytes gmem\n"
      "ptxas info    : Compiling entry function '_Z1aPf' for 'sm_80'\n"
      "ptxas info    : Function properties for _Z1aPf\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 0 barriers, 368 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90a'\n"
      "ptxas info    : Function properties for _Z1bPf\n"
      "    64 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n");
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].function, "_Z1aPf");
  EXPECT_EQ(functions[0].architecture, "sm_80");
  EXPECT_TRUE(functions[0].in_registers());
  EXPECT_EQ(functions[1].architecture, "sm_90a");
  EXPECT_EQ(functions[1].stack, 64);
  EXPECT_EQ(functions[1].spill_stores, 12);
  EXPECT_EQ(functions[1].spill_loads, 16);
  EXPECT_FALSE(functions[1].in_registers());
  EXPECT_TRUE(read_report("").empty());
}

#ifdef MPT_PTXAS_REPORTS
std::string describe(const FunctionResources& f) {
  return f.architecture + ": " + f.function + ": stack frame " + std::to_string(f.stack) + ", spill stores " +
         std::to_string(f.spill_stores) + ", spill loads " + std::to_string(f.spill_loads) + " bytes";
}

// <build>/CMakeFiles/mpt_<layer>.dir/src/<layer>/<kernels>.cu.o.ptxas
fs::path report_of(const fs::path& source) {
  const fs::path relative = fs::relative(source, MPT_SOURCE_DIR);
  const std::string layer = std::next(relative.begin())->string();
  return fs::path(MPT_PTXAS_REPORTS) / ("mpt_" + layer + ".dir") / (relative.string() + ".o.ptxas");
}

std::vector<fs::path> kernel_sources(const std::string& layer) {
  std::vector<fs::path> sources;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MPT_SOURCE_DIR) / "src" / layer))
    if (entry.path().extension() == ".cu") sources.push_back(entry.path());
  std::ranges::sort(sources);
  return sources;
}

bool counts_updates(const FunctionResources& f) {
  return f.function.find("CountUpdates") != std::string::npos;
}

class KernelResources : public testing::TestWithParam<const char*> {};

TEST_P(KernelResources, NeitherStackNorSpills) {
  const std::vector<fs::path> sources = kernel_sources(GetParam());
  ASSERT_FALSE(sources.empty());
  for (const fs::path& source : sources) {
    std::ifstream report(report_of(source));
    ASSERT_TRUE(report) << report_of(source) << " is missing";
    const std::vector<FunctionResources> functions = read_report(report);
    EXPECT_FALSE(functions.empty()) << report_of(source) << " names no kernel";
    for (const FunctionResources& f : functions)
      EXPECT_TRUE(f.in_registers() || counts_updates(f)) << describe(f);
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, KernelResources, testing::Values("optim", "precision"),
                         [](const auto& instance) { return std::string(instance.param); });
#endif

}  // namespace
}  // namespace mpt
