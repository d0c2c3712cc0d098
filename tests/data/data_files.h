// Shared by the data tests: fresh directories, generated text, files, gzip, shards, and errors by
// message.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "core/check.h"
#include "data/token_shard.h"
#include "text/tokenizer_training.h"

namespace mpt::test {

// Removes the tests' directories when the process ends.
struct DirectoryCleaner {
  std::vector<std::filesystem::path> directories;
  ~DirectoryCleaner() {
    std::error_code ignored;
    for (const auto& directory : directories) std::filesystem::remove_all(directory, ignored);
  }
};
inline DirectoryCleaner directory_cleaner;

// Returns an empty directory that no other test uses.
inline std::string fresh_directory() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  static int number = 0;
  std::string name = fmt::format("mpt_data_{}_{}_{}_{}", ::getpid(), info->test_suite_name(),
                                 info->name(), number++);
  std::replace(name.begin(), name.end(), '/', '_');
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  directory_cleaner.directories.push_back(path);
  return path.string();
}

inline std::string write_text(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string gzip(std::string_view content) {
  z_stream zlib{};
  deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&zlib, content.size()) + 64, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  zlib.avail_in = static_cast<uInt>(content.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  deflate(&zlib, Z_FINISH);
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}

inline std::string zstd(std::string_view content) {
  std::string out(ZSTD_compressBound(content.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 3));
  return out;
}

// Returns the message of the Error that `action` must throw.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& failure) {
    return failure.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline void expect_error(const std::function<void()>& action,
                         const std::vector<std::string>& parts) {
  const std::string message = error_of(action);
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos)
        << "'" << part << "' is missing in: " << message;
}

// Returns words of a small made-up language, in sentences; deterministic on every platform.
inline std::string generated_text(uint32_t seed, int words) {
  std::mt19937 random(
      seed);  // its sequence is fixed by the standard; distributions are not, so none is used
  const std::vector<std::string> syllables{"ka", "lo",  "mi",  "ter", "an",
                                           "su", "ben", "dor", "eli", "fra"};
  std::string text;
  for (int word = 0; word < words; ++word) {
    for (uint32_t i = 0, n = 1 + random() % 3; i < n; ++i)
      text += syllables[random() % syllables.size()];
    text += random() % 9 == 0 ? ".\n" : " ";
  }
  return text;
}

inline std::vector<int32_t> counting_tokens(int64_t count, int32_t first = 0,
                                            int32_t modulus = 60000) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((first + static_cast<int64_t>(i)) % modulus);
  return tokens;
}

inline std::string write_shard(const std::string& path, const std::vector<int32_t>& tokens,
                               TokenWidth width = TokenWidth::kUint16) {
  TokenShardWriter writer(path, width);
  writer.append(tokens);
  writer.commit();
  return path;
}

// Returns a tokenizer of 320 pieces, trained once per process.
inline const std::string& small_tokenizer() {
  static const std::string path = [] {
    const std::string directory = fresh_directory();
    TokenizerTrainingOptions options;
    options.corpus.patterns = {write_text(directory + "/text.txt", generated_text(1, 4000))};
    options.output = directory + "/small";
    options.vocab_size = 320;
    return train_tokenizer(options).path;
  }();
  return path;
}

}  // namespace mpt::test
