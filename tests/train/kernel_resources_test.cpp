// The ptxas report of the kernels from their build (cmake/keep_ptxas_report.sh): those of the
// optimizer and of the casts keep all their data in registers.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
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

  [[nodiscard]] bool in_registers() const {
    return stack == 0 && spill_stores == 0 && spill_loads == 0;
  }
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
    if (sscanf(line.c_str(),
               " %ld bytes stack frame, %ld bytes spill stores, %ld bytes spill loads", &stack,
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
  return f.architecture + ": " + f.function + ": stack frame " + std::to_string(f.stack) +
         ", spill stores " + std::to_string(f.spill_stores) + ", spill loads " +
         std::to_string(f.spill_loads) + " bytes";
}

// Returns <object>.ptxas for everything compiled for exact arithmetic: kernels of precision, optim
// and of each rule.
std::vector<fs::path> reports() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(MPT_PTXAS_REPORTS))
    if (entry.path().extension() == ".ptxas") paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

bool counts_updates(const FunctionResources& f) {
  return f.function.find("CountUpdates") != std::string::npos;
}

TEST(KernelResources, NeitherStackNorSpills) {
  for (const fs::path& path : reports()) {
    std::ifstream report(path);
    const std::vector<FunctionResources> functions = read_report(report);
    EXPECT_FALSE(functions.empty()) << path << " names no kernel";
    for (const FunctionResources& f : functions)
      EXPECT_TRUE(f.in_registers() || counts_updates(f)) << describe(f);
  }
}

// Only those of the model's kernels that cast their own results.
TEST(KernelResources, CastsOfTheModelAreInRegisters) {
  for (const char* name : {"computed_casts", "gradient_casts"}) {
    const fs::path path =
        fs::path(MPT_MODEL_PTXAS_REPORTS) / "cuda" / (std::string(name) + ".cu.o.ptxas");
    std::ifstream report(path);
    const std::vector<FunctionResources> functions = read_report(report);
    EXPECT_FALSE(functions.empty()) << path << " names no kernel";
    for (const FunctionResources& f : functions) EXPECT_TRUE(f.in_registers()) << describe(f);
  }
}

// Expects "<name>.cu.o.ptxas" of every kernel file of src/optim and src/precision, and of every
// rule's first step.
TEST(KernelResources, EveryKernelFileHasAReport) {
  std::set<std::string> found;
  for (const fs::path& path : reports()) found.insert(path.filename().string());
  const fs::path source(MPT_SOURCE_DIR);
  for (const char* layer : {"optim", "precision"})
    for (const auto& entry : fs::recursive_directory_iterator(source / "src" / layer)) {
      if (entry.path().extension() != ".cu") continue;
      EXPECT_TRUE(found.contains(entry.path().filename().string() + ".o.ptxas")) << entry.path();
    }
  for (const auto& entry : fs::directory_iterator(source / "src/optim/rules"))
    EXPECT_TRUE(found.contains(entry.path().stem().string() + "_0_cuda.cu.o.ptxas"))
        << entry.path();
}
#endif

}  // namespace
}  // namespace mpt
