// The shape of the source tree: no file includes a layer above its own, CUDA is confined to its
// places, formats and rules are named only by their own headers and lists, and every test file is
// in the directory where it is built.
#include <algorithm>
#include <cctype>
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

// Layer: the other layers it may include. `main` is src/main.cpp.
const std::map<std::string, std::set<std::string>> kMayInclude{
    {"core", {}},
    {"device", {"core"}},
    {"ranks", {"device", "core"}},
    {"precision", {"device", "core"}},
    {"model", {"precision", "ranks", "device", "core"}},
    {"optim", {"precision", "ranks", "device", "core"}},
    {"data", {"core"}},
    {"text", {"data", "core"}},
    {"config", {"model", "optim", "text", "data", "precision", "ranks", "device", "core"}},
    {"checkpoint", {"ranks", "device", "core"}},
    {"weights",
     {"config", "checkpoint", "model", "text", "data", "precision", "ranks", "device", "core"}},
    {"evaluation",
     {"weights", "config", "checkpoint", "model", "text", "data", "precision", "ranks", "device",
      "core"}},
    {"interchange",
     {"weights", "config", "checkpoint", "model", "text", "data", "precision", "ranks", "device",
      "core"}},
    {"watch", {"core"}},
    {"train",
     {"watch", "evaluation", "weights", "config", "checkpoint", "model", "optim", "text", "data",
      "precision", "ranks", "device", "core"}},
    {"plan",
     {"train", "evaluation", "weights", "config", "checkpoint", "model", "optim", "text", "data",
      "precision", "ranks", "device", "core"}},
    {"toy", {"precision", "core"}},
    {"cli",
     {"plan", "train", "watch", "interchange", "evaluation", "weights", "toy", "config",
      "checkpoint", "model", "optim", "text", "data", "precision", "ranks", "device", "core"}},
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
  return path.starts_with("device/cuda/") || path.starts_with("ranks/cuda/") ||
         path.ends_with(".cu") || path.ends_with(".cuh");
}

std::optional<std::string> fault_of_include(const std::string& path, const std::string& name) {
  const std::string from = layer_of(path);
  const std::string to = layer_of(name);
  if (std::regex_search(name, kCudaHeader) && !may_use_cuda(path)) {
    return fmt::format(
        "{} includes the CUDA header {}; only device/cuda/, ranks/cuda/ and *.cu may", path, name);
  }
  if (!kMayInclude.contains(to) || to == from) return std::nullopt;
  if (kMayInclude.at(from).contains(to)) return std::nullopt;
  return fmt::format("{} includes {}; {} may include only itself, {}", path, name, from,
                     fmt::join(kMayInclude.at(from), ", "));
}

// Returns the errors in the includes of one file, named relative to src/.
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

// Returns the paths of the files below a directory, relative to it, sorted.
std::vector<std::string> files_below(const fs::path& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file())
      paths.push_back(fs::relative(entry.path(), directory).generic_string());
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
    for (const std::string& fault : faults_of(path, text_of(kRoot / "src" / path)))
      ADD_FAILURE() << fault;
  }
  EXPECT_GT(files, 20);
}

TEST(Layering, EveryLayerOfTheTableHasADirectory) {
  for (const auto& [layer, below] : kMayInclude) {
    EXPECT_TRUE(fs::exists(kRoot / "src" / (layer == "main" ? "main.cpp" : layer))) << layer;
    for (const std::string& other : below) EXPECT_TRUE(kMayInclude.contains(other)) << other;
  }
}

// Otherwise a name could be found in two ways, one of which would escape the check above.
TEST(Layering, ProjectHeadersAreNamedFromSrc) {
  for (const std::string& path : files_below(kRoot / "src")) {
    if (!is_source(path)) continue;
    std::istringstream lines(text_of(kRoot / "src" / path));
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, kInclude) || line.find('"') == std::string::npos)
        continue;
      EXPECT_TRUE(fs::exists(kRoot / "src" / match[1].str())) << path << ": " << line;
      EXPECT_EQ(match[1].str().find(".."), std::string::npos) << path << ": " << line;
    }
  }
}

// Turning text into shards is a separate program's work before training, which only reads them.
// Tasks read their files like corpora.
TEST(Layering, OnlyTheCommandLineMakesShards) {
  for (const std::string& path : files_below(kRoot / "src")) {
    if (!is_source(path) || path.starts_with("text/") || path.starts_with("cli/")) continue;
    if (path.starts_with("evaluation/tasks/")) continue;
    for (const std::string& name : included(text_of(kRoot / "src" / path)))
      EXPECT_FALSE(name.starts_with("text/corpus/")) << path << " includes " << name;
  }
}

TEST(Layering, CheckerReportsAnUpwardInclude) {
  const auto faults = faults_of("core/check.h", "#pragma once\n  #  include \"train/trainer.h\"\n");
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].find("core/check.h includes train/trainer.h"), std::string::npos)
      << faults[0];
}

TEST(Layering, CheckerReportsSiblingsAndAngleBrackets) {
  EXPECT_EQ(faults_of("model/llama.cpp", "#include \"optim/rules.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("optim/rules.h", "#include <model/llama.h>\n").size(), 1u);
  EXPECT_EQ(faults_of("data/token_stream.cpp", "#include \"device/device.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("main.cpp", "#include \"model/llama.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("stray/file.h", "").size(), 1u);
}

TEST(Layering, CheckerReportsCudaOutsideItsPlaces) {
  const std::string source = "#include <cuda_runtime.h>\n";
  EXPECT_EQ(faults_of("train/trainer.cpp", source).size(), 1u);
  EXPECT_EQ(faults_of("device/device.h", source).size(), 1u);
  EXPECT_TRUE(faults_of("device/cuda/cuda_device.cpp", source).empty());
  EXPECT_TRUE(faults_of("optim/update/optimizer_ops_cuda.cu", source).empty());
}

// Returns words of a source that reveal CUDA in the wrong place: its stream anywhere but in CUDA's
// own files, and whether CUDA is present, which the program knows from the code linked into it
// (device/ops_registry.h).
std::vector<std::string> cuda_words_in(const std::string& path, const std::string& source) {
  std::vector<std::string> words{"MPT_FAKE_CUDA", "MPT_WITH_CUDA", "MPT_WITH_NCCL"}, found;
  if (!may_use_cuda(path)) words.insert(words.end(), {"CUstream_st", "cudaStream_t"});
  for (const std::string& word : words)
    if (source.find(word) != std::string::npos) found.push_back(word);
  return found;
}

TEST(Layering, CudaIsNoConditionAndItsStreamStaysInItsPlaces) {
  for (const std::string& path : files_below(kRoot / "src"))
    EXPECT_EQ(cuda_words_in(path, text_of(kRoot / "src" / path)), std::vector<std::string>{})
        << path;
}

TEST(Layering, CheckerReportsWordsOfCuda) {
  EXPECT_EQ(cuda_words_in("device/device.h", "struct CUstream_st;"),
            std::vector<std::string>{"CUstream_st"});
  EXPECT_EQ(cuda_words_in("model/llama.cpp", "cudaStream_t stream;"),
            std::vector<std::string>{"cudaStream_t"});
  for (const char* path : {"device/cuda/cuda_gemm.h", "ranks/cuda/nccl_transport.h", "optim/ops.cu",
                           "model/norm.cuh"}) {
    EXPECT_TRUE(cuda_words_in(path, "CUstream_st* stream;").empty()) << path;
    EXPECT_EQ(cuda_words_in(path, "#ifdef MPT_FAKE_CUDA"),
              std::vector<std::string>{"MPT_FAKE_CUDA"})
        << path;
    EXPECT_EQ(cuda_words_in(path, "#if defined(MPT_WITH_CUDA)").size(), 1u) << path;
  }
  EXPECT_TRUE(cuda_words_in("device/cuda/cudnn_attention.cpp", "#ifdef MPT_WITH_CUDNN").empty());
}

TEST(Layering, CheckerAcceptsDownwardIncludes) {
  EXPECT_TRUE(
      faults_of("train/trainer.cpp", "#include \"optim/rules.h\"\n#include <vector>\n").empty());
  EXPECT_TRUE(
      faults_of("core/io/hash.cpp", "#include \"core/io/hash.h\"\n#include <xxhash.h>\n").empty());
  EXPECT_TRUE(faults_of("core/io/hash.cpp", "// #include \"train/trainer.h\"\n").empty());
}

// --- names of weight formats and update rules ----------------------------------------------------

// Names of the headers in a directory of src/: "block_fp8".
std::vector<std::string> headers_of(const std::string& directory) {
  std::vector<std::string> names;
  for (const std::string& path : files_below(kRoot / "src" / directory))
    if (path.ends_with(".h")) names.push_back(path.substr(0, path.size() - 2));
  return names;
}

std::string without(std::string text, const std::string& part) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos;) text.erase(at, part.size());
  return text;
}

// In lower case and without underscores: block_fp8, BlockFp8 and kBlockFp8 are the same.
std::string plain(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return without(text, "_");
}

// Returns the formats named by a file of optim or model. One key of optim names one legitimately,
// with its enumeration and documentation.
std::vector<std::string> formats_named_in(const std::string& source,
                                          const std::vector<std::string>& codecs) {
  std::string text = plain(source);
  for (const char* key : {"nvfp4additivescale", "of an nvfp4 weight"}) text = without(text, key);
  std::vector<std::string> names{"weightformat::k", "fp32weights", "bf16weights"}, found;
  for (const std::string& codec : codecs)
    if (codec != "elements") names.push_back(plain(codec));
  for (const std::string& name : names)
    if (text.find(name) != std::string::npos) found.push_back(name);
  return found;
}

TEST(Layering, OptimizersAndModelNameNoWeightFormat) {
  const std::vector<std::string> codecs = headers_of("precision/codecs");
  ASSERT_GE(codecs.size(), 4u);
  for (const std::string layer : {"optim", "model"})
    for (const std::string& path : files_below(kRoot / "src" / layer))
      EXPECT_EQ(formats_named_in(text_of(kRoot / "src" / layer / path), codecs),
                std::vector<std::string>{})
          << layer << "/" << path;
}

TEST(Layering, CheckerReportsNamesOfFormats) {
  const std::vector<std::string> codecs{"block_fp8", "elements", "nvfp4"};
  for (const char* source :
       {"BlockFp8Codec codec;", "// of block_fp8 weights", "Nvfp4ScaleMode::kLive", "kNvfp4Block",
        "format == WeightFormat::kF32", "Bf16Weights"})
    EXPECT_EQ(formats_named_in(source, codecs).size(), 1u) << source;
  for (const char* source : {"nvfp4_additive_scale == Nvfp4AdditiveScale::kBlock",
                             "WeightFormat format;", "elements", "DType::kBF16"})
    EXPECT_EQ(formats_named_in(source, codecs), std::vector<std::string>{}) << source;
}

TEST(Layering, EveryWeightFormatIsInTheList) {
  const std::string list = text_of(kRoot / "src/precision/weight_formats.h");
  for (const std::string& codec : headers_of("precision/codecs"))
    EXPECT_NE(list.find(fmt::format("#include \"precision/codecs/{}.h\"", codec)),
              std::string::npos)
        << codec;
}

// Returns whether one of the rules is named as a word, with or without its underscores, in upper or
// lower case.
bool names_a_rule(const std::string& source, const std::vector<std::string>& rules) {
  std::string text = source;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const auto is_word = [&](size_t at) {
    return at < text.size() && std::isalnum((unsigned char)text[at]);
  };
  for (const std::string& rule : rules)
    for (const std::string& name : {rule, plain(rule)})
      for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++at)
        if (!(at > 0 && is_word(at - 1)) && !is_word(at + name.size())) return true;
  return false;
}

// Files that may name a rule, and why.
const std::map<std::string, std::string> kNamesRules{
    {"core/json/config_fields.h", "an example"},
    {"core/json/config_reader.h", "an example"},
    {"optim/update/apollo_e_on.h", "Apollo-E projects the gradient of M+Adam's exponents"},
    {"optim/rule_list.h", "the list"},
    {"toy/toy.cpp", "the branches of M+Adam, fitted one by one"},
    {"toy/toy_fit.h", "the same"},
    {"config/usual_spellings.cpp", "what users write for it"},
};

TEST(Layering, RulesAreNamedByThemselvesAndTheirList) {
  const std::vector<std::string> rules = headers_of("optim/rules");
  ASSERT_GE(rules.size(), 3u);
  for (const std::string& path : files_below(kRoot / "src")) {
    if (path.starts_with("optim/rules/")) continue;
    EXPECT_EQ(names_a_rule(text_of(kRoot / "src" / path), rules), kNamesRules.contains(path))
        << path;
  }
}

TEST(Layering, CheckerReportsNamesOfRules) {
  const std::vector<std::string> rules{"lion", "m_plus_adam"};
  for (const char* source :
       {"\"lion\"", "Lion::Config", "m_plus_adam", "MPlusAdam{}", "optim/rules/lion.h"})
    EXPECT_TRUE(names_a_rule(source, rules)) << source;
  for (const char* source : {"a million", "M+Adam", "adam"})
    EXPECT_FALSE(names_a_rule(source, rules)) << source;
}

// --- random streams ------------------------------------------------------------------------------

// "inline constexpr RandomStream kInitStream{0};" -> {"kInitStream", 0}
std::vector<std::pair<std::string, int>> streams_declared_in(const std::string& source) {
  static const std::regex kDeclaration(R"(constexpr RandomStream (\w+)\{(\d+)\})");
  std::vector<std::pair<std::string, int>> found;
  for (std::sregex_iterator it(source.begin(), source.end(), kDeclaration), end; it != end; ++it)
    found.emplace_back((*it)[1], std::stoi((*it)[2]));
  return found;
}

// Checkpoints rely on the numbers; two uses of one number would draw the same words.
TEST(RandomStreams, KeepTheirNumbersAndShareNone) {
  const std::map<std::string, int> known{{"kInitStream", 0},
                                         {"kWeightRoundingStream", 1},
                                         {"kMomentumRoundingStream", 2},
                                         {"kVarianceRoundingStream", 3},
                                         {"kExponentVarianceRoundingStream", 4},
                                         {"kProjectionStream", 5},
                                         {"kDataOrderStream", 6},
                                         {"kSyntheticStream", 7},
                                         {"kSamplingStream", 8}};
  std::map<std::string, int> found;
  std::set<int> numbers;
  for (const std::string& path : files_below(kRoot / "src"))
    for (const auto& [name, number] : streams_declared_in(text_of(kRoot / "src" / path))) {
      EXPECT_TRUE(numbers.insert(number).second) << path << ": " << number << " is taken";
      EXPECT_TRUE(found.emplace(name, number).second)
          << path << ": " << name << " is declared twice";
    }
  for (const auto& [name, number] : known)
    EXPECT_EQ(found.contains(name) ? found.at(name) : -1, number) << name;
}

TEST(RandomStreams, CheckerFindsDeclarations) {
  using Found = std::vector<std::pair<std::string, int>>;
  EXPECT_EQ(
      streams_declared_in("inline constexpr RandomStream kA{3};\nconstexpr RandomStream kB{12};"),
      (Found{{"kA", 3}, {"kB", 12}}));
  EXPECT_EQ(streams_declared_in("RandomStream stream = kA;"), Found{});
}

// --- tests ---------------------------------------------------------------------------------------

// Returns the directories built by tests/CMakeLists.txt: the layers of its foreach(), which globs
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

// A file with tests under another name would be silently ignored, unless the build names it: that
// is for tests with requirements that only some machines meet.
TEST(TestRegistry, EveryFileWithTestsIsNamedAsOne) {
  const std::regex test(R"(^(TEST|TEST_F|TEST_P|TYPED_TEST)\()", std::regex::multiline);
  const std::string build = text_of(kRoot / "tests/CMakeLists.txt");
  for (const std::string& path : files_below(kRoot / "tests")) {
    if (!is_source(path) || path.ends_with("_test.cpp") || build.find(path) != std::string::npos)
      continue;
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
  EXPECT_TRUE(registered_layers(
                  "foreach(layer core)\nfile(GLOB sources CONFIGURE_DEPENDS cuda/*_test.cpp)\n")
                  .contains("cuda"));
}

// json's own dump() throws for bytes that are not UTF-8; json_text() does not.
TEST(Layering, JsonIsWrittenByOneFunction) {
  for (const std::string& path : files_below(kRoot / "src"))
    EXPECT_TRUE(path == "core/json/json_parse.h" ||
                text_of(kRoot / "src" / path).find(".dump(") == std::string::npos)
        << path;
}

TEST(Layering, NoFolderHasMoreThanTwentyFiveFiles) {
  std::map<std::string, int> files;
  for (const std::string& path : files_below(kRoot / "src"))
    ++files[fs::path(path).parent_path().generic_string()];
  for (const auto& [folder, count] : files) EXPECT_LE(count, 25) << folder;
}

}  // namespace
}  // namespace mpt
