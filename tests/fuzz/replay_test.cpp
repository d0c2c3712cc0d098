// Every fuzz target reads its corpus, in every build: seeds, and earlier findings of a fuzzer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "fuzz/input_directory.h"

#define MPT_FUZZ_TARGET(name) extern "C" int fuzz_##name(const uint8_t* data, size_t size);
#include "fuzz/fuzz_targets.inc"
#undef MPT_FUZZ_TARGET

namespace mpt {
namespace {

namespace fs = std::filesystem;

struct Target {
  std::string name;
  int (*read)(const uint8_t* data, size_t size);
};

const std::vector<Target>& targets() {
#define MPT_FUZZ_TARGET(name) {#name, fuzz_##name},
  static const std::vector<Target> all{
#include "fuzz/fuzz_targets.inc"
  };
#undef MPT_FUZZ_TARGET
  return all;
}

const fs::path kCorpus = fs::path(MPT_SOURCE_DIR) / "tests/fuzz/corpus";

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(directory)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

std::vector<uint8_t> content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Replay : public testing::TestWithParam<Target> {};

// A file whose name begins with "valid" must be accepted; any other one may be accepted or refused.
TEST_P(Replay, ReadsItsCorpus) {
  int64_t accepted = 0, refused = 0;
  for (const fs::path& file : entries_of(kCorpus / GetParam().name)) {
    SCOPED_TRACE(file.string());
    const std::vector<uint8_t> content = content_of(file);
    fuzz::last_refusal().clear();
    EXPECT_NO_THROW(EXPECT_EQ(GetParam().read(content.data(), content.size()), 0));
    (fuzz::last_refusal().empty() ? accepted : refused)++;
    if (file.filename().string().starts_with("valid")) {
      EXPECT_EQ(fuzz::last_refusal(), "");
    }
  }
  EXPECT_GE(accepted, 1);
  EXPECT_GE(refused, 1);
}

INSTANTIATE_TEST_SUITE_P(Corpus, Replay, testing::ValuesIn(targets()),
                         [](const auto& target) { return target.param.name; });

TEST(FuzzTargets, EveryCorpusHasATarget) {
  std::vector<std::string> corpora, names;
  for (const fs::path& directory : entries_of(kCorpus)) corpora.push_back(directory.filename());
  for (const Target& target : targets()) names.push_back(target.name);
  EXPECT_EQ(corpora, names);
}

TEST(FuzzTargets, AnExceptionThatIsNoErrorIsAFinding) {
  EXPECT_THROW(fuzz::accept_or_refuse([] { throw std::length_error("any"); }), std::length_error);
  EXPECT_THROW(fuzz::accept_or_refuse([] { throw LogicError("any"); }), LogicError);
  EXPECT_NO_THROW(fuzz::accept_or_refuse([] { throw Error("this file is wrong"); }));
  EXPECT_EQ(fuzz::last_refusal(), "this file is wrong");
}

}  // namespace
}  // namespace mpt
