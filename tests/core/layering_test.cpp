// The shape of the source tree: no file includes a layer above its own, CUDA stays in its places, and every
// test file lies where it is built.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace mpt {
namespace {

namespace fs = std::filesystem;

// Layer: the layers it may include besides itself. `main` is src/main.cpp.
const std::map<std::string, std::set<std::string>> kMayInclude{
    {"core", {}},
    {"device", {"core"}},
    {"comm", {"device", "core"}},
    {"precision", {"device", "core"}},
    {"model", {"precision", "comm", "device", "core"}},
    {"optim", {"precision", "comm", "device", "core"}},
    {"data", {"core"}},
    {"train", {"model", "optim", "data", "precision", "comm", "device", "core"}},
    {"cli", {"train", "model", "optim", "data", "precision", "comm", "device", "core"}},
    {"main", {"cli", "core"}},
};

const std::regex kInclude(R"rx(^\s*#\s*include\s*["<]([^">]+)[">])rx");
const std::regex kCudaHeader("^(cuda|cub/|cublas|cudnn|nccl|cooperative_groups|nvtx)");

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> included(const std::string& source) {
  std::vector<std::string> names;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) names.push_back(match[1]);
  }
  return names;
}

// "optim/rules.h" -> "optim"; "main.cpp" -> "main".
std::string layer_of(const std::string& path) {
  return path == "main.cpp" ? "main" : path.substr(0, path.find('/'));
}

bool may_use_cuda(const std::string& path) {
  return path.starts_with("device/cuda/") || path.starts_with("comm/cuda/") || path.ends_with(".cu") || path.ends_with(".cuh");
}

std::optional<std::string> fault_of_include(const std::string& path, const std::string& name) {
  const std::string from = layer_of(path);
  const std::string to = layer_of(name);
  if (std::regex_search(name, kCudaHeader) && !may_use_cuda(path)) {
    return fmt::format("{} includes the CUDA header {}; only device/cuda/, comm/cuda/ and *.cu may", path, name);
  }
  if (!kMayInclude.contains(to) || to == from) return std::nullopt;
  if (kMayInclude.at(from).contains(to)) return std::nullopt;
  return fmt::format("{} includes {}; {} may include only itself, {}", path, name, from,
                     fmt::join(kMayInclude.at(from), ", "));
}

// What is wrong with the includes of one file, named relative to src/.
std::vector<std::string> faults_of(const std::string& path, const std::string& source) {
  if (!kMayInclude.contains(layer_of(path))) {
    return {fmt::format("{} is in no known layer; add it to the table in this test", path)};
  }
  std::vector<std::string> faults;
  for (const std::string& name : included(source)) {
    if (const auto fault = fault_of_include(path, name)) faults.push_back(*fault);
  }
  return faults;
}

// Paths of the files below a directory, relative to it, sorted.
std::vector<std::string> files_below(const fs::path& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) paths.push_back(fs::relative(entry.path(), directory).generic_string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_source(const std::string& path) {
  static const std::set<std::string> kEndings{".h", ".cpp", ".cu", ".cuh"};
  return kEndings.contains(fs::path(path).extension().string());
}

const fs::path kRoot = MPT_SOURCE_DIR;

TEST(Layering, NoFileIncludesALayerAboveItsOwn) {
  int files = 0;
  for (const std::string& path : files_below(kRoot / "src")) {
    if (!is_source(path)) continue;
    ++files;
    for (const std::string& fault : faults_of(path, text_of(kRoot / "src" / path))) ADD_FAILURE() << fault;
  }
  EXPECT_GT(files, 20);
}

TEST(Layering, EveryLayerOfTheTableHasADirectory) {
  for (const auto& [layer, below] : kMayInclude) {
    EXPECT_TRUE(fs::exists(kRoot / "src" / (layer == "main" ? "main.cpp" : layer))) << layer;
    for (const std::string& other : below) EXPECT_TRUE(kMayInclude.contains(other)) << other;
  }
}

// Else a name could be found in two ways, and one of them would escape the check above.
TEST(Layering, ProjectHeadersAreNamedFromSrc) {
  for (const std::string& path : files_below(kRoot / "src")) {
    if (!is_source(path)) continue;
    std::istringstream lines(text_of(kRoot / "src" / path));
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, kInclude) || line.find('"') == std::string::npos) continue;
      EXPECT_TRUE(fs::exists(kRoot / "src" / match[1].str())) << path << ": " << line;
      EXPECT_EQ(match[1].str().find(".."), std::string::npos) << path << ": " << line;
    }
  }
}

TEST(Layering, CheckerReportsAnUpwardInclude) {
  const auto faults = faults_of("core/check.h", "#pragma once\n  #  include \"train/trainer.h\"\n");
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].find("core/check.h includes train/trainer.h"), std::string::npos) << faults[0];
}

TEST(Layering, CheckerReportsSiblingsAndAngleBrackets) {
  EXPECT_EQ(faults_of("model/llama.cpp", "#include \"optim/rules.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("optim/rules.h", "#include <model/llama.h>\n").size(), 1u);
  EXPECT_EQ(faults_of("data/order.cpp", "#include \"device/device.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("main.cpp", "#include \"model/llama.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("stray/file.h", "").size(), 1u);
}

TEST(Layering, CheckerReportsCudaOutsideItsPlaces) {
  const std::string source = "#include <cuda_runtime.h>\n";
  EXPECT_EQ(faults_of("train/trainer.cpp", source).size(), 1u);
  EXPECT_EQ(faults_of("device/device.h", source).size(), 1u);
  EXPECT_TRUE(faults_of("device/cuda/cuda_device.cpp", source).empty());
  EXPECT_TRUE(faults_of("optim/update_ops_cuda.cu", source).empty());
}

TEST(Layering, CheckerAcceptsDownwardIncludes) {
  EXPECT_TRUE(faults_of("train/trainer.cpp", "#include \"optim/rules.h\"\n#include <vector>\n").empty());
  EXPECT_TRUE(faults_of("core/hash.cpp", "#include \"core/hash.h\"\n#include <xxhash.h>\n").empty());
  EXPECT_TRUE(faults_of("core/hash.cpp", "// #include \"train/trainer.h\"\n").empty());
}

// The directories that tests/CMakeLists.txt builds: the layers of its foreach(), which globs
// <layer>/*_test.cpp, and those globbed by name.
std::set<std::string> registered_layers(const std::string& cmake) {
  std::smatch match;
  if (!std::regex_search(cmake, match, std::regex(R"(foreach\(layer ([a-z ]+)\))"))) return {};
  std::istringstream words(match[1]);
  std::set<std::string> names{std::istream_iterator<std::string>(words), {}};
  const std::regex glob(R"(file\(GLOB sources CONFIGURE_DEPENDS ([a-z]+)/\*_test\.cpp\))");
  for (std::sregex_iterator it(cmake.begin(), cmake.end(), glob), end; it != end; ++it)
    names.insert((*it)[1]);
  return names;
}

bool is_registered(const std::string& test, const std::set<std::string>& layers) {
  const fs::path path = test;
  return layers.contains(path.parent_path().generic_string());
}

TEST(TestRegistry, EveryTestFileIsInADirectoryThatIsBuilt) {
  const auto layers = registered_layers(text_of(kRoot / "tests/CMakeLists.txt"));
  ASSERT_TRUE(layers.contains("core"));
  int tests = 0;
  for (const std::string& path : files_below(kRoot / "tests")) {
    if (!path.ends_with("_test.cpp")) continue;
    ++tests;
    EXPECT_TRUE(is_registered(path, layers)) << "tests/" << path << " is never built";
  }
  EXPECT_GT(tests, 0);
}

// A file with tests in it under another name would be left out silently, unless the build names it: those
// that need what only some machines have.
TEST(TestRegistry, EveryFileWithTestsIsNamedAsOne) {
  const std::regex test(R"(^(TEST|TEST_F|TEST_P|TYPED_TEST)\()", std::regex::multiline);
  const std::string build = text_of(kRoot / "tests/CMakeLists.txt");
  for (const std::string& path : files_below(kRoot / "tests")) {
    if (!is_source(path) || path.ends_with("_test.cpp") || build.find(path) != std::string::npos) continue;
    EXPECT_FALSE(std::regex_search(text_of(kRoot / "tests" / path), test)) << "tests/" << path;
  }
}

TEST(TestRegistry, CheckerReportsAStrayTest) {
  const auto layers = registered_layers("foreach(layer core device)\n");
  EXPECT_EQ(layers, (std::set<std::string>{"core", "device"}));
  EXPECT_TRUE(is_registered("core/check_test.cpp", layers));
  EXPECT_FALSE(is_registered("stray_test.cpp", layers));
  EXPECT_FALSE(is_registered("core/deep/check_test.cpp", layers));
  EXPECT_FALSE(is_registered("train/trainer_test.cpp", layers));
  EXPECT_TRUE(registered_layers("foreach(layer core)\nfile(GLOB sources CONFIGURE_DEPENDS cuda/*_test.cpp)\n")
                  .contains("cuda"));
}

}  // namespace
}  // namespace mpt
