// GGUF files byte for byte against tests/golden/tiny.gguf, written by the gguf package.
#include "interchange/gguf.h"

#include <gtest/gtest.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/float_format.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

const std::vector<StoredTensorInfo> kTensors{{"matrix", StoredType::kF32, {3, 5}},
                                             {"vector", StoredType::kF32, {8}},
                                             {"half", StoredType::kF16, {2, 3}},
                                             {"brain", StoredType::kBF16, {2, 2}}};

GgufMetadata golden_metadata() {
  GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  metadata.add("name", "tiny \xC3\xA9");
  metadata.add("count", uint32_t{4000000000u});
  metadata.add("real", -0.1f);
  metadata.add_flag("yes", true);
  metadata.add_flag("no", false);
  metadata.add("texts", std::vector<std::string>{"a", "",
                                                 "\xE2\x96\x81"
                                                 "b"});
  metadata.add("reals", std::vector<float>{0.5f, -1e30f});
  metadata.add("integers", std::vector<int32_t>{-1, 2, 3});
  return metadata;
}

template <class T>
void append_bytes(std::vector<std::byte>& all, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

// Elements of all tensors: quarters from 0 on.
std::vector<std::byte> golden_data() {
  std::vector<float> quarters;
  for (int i = 0; i < 15; ++i) quarters.push_back(float(i) / 4);
  std::vector<std::byte> bytes;
  append_bytes(bytes, quarters);
  append_bytes(bytes, std::vector<float>(quarters.begin(), quarters.begin() + 8));
  std::vector<uint16_t> halves, brains;
  for (int i = 0; i < 6; ++i) halves.push_back(fp16_nearest(quarters[size_t(i)]));
  for (int i = 0; i < 4; ++i) brains.push_back(bf16_nearest(quarters[size_t(i)]).bits);
  append_bytes(bytes, halves);
  append_bytes(bytes, brains);
  return bytes;
}

TEST(Gguf, IsTheFileOfTheGgufPackage) {
  FileSystem& fs = posix_file_system();
  const std::string golden = fs.read_file(MPT_SOURCE_DIR "/tests/golden/tiny.gguf");
  const std::vector<std::byte> data = golden_data();
  for (const size_t piece : {size_t{1}, size_t{7}, data.size()}) {
    const test::TempDirectory directory;
    GgufWriter writer(fs, directory / "tiny.gguf", golden_metadata(), kTensors);
    for (size_t at = 0; at < data.size(); at += piece)
      writer.append(std::span(data).subspan(at, std::min(piece, data.size() - at)));
    EXPECT_FALSE(fs.exists(directory / "tiny.gguf"));
    writer.commit();
    EXPECT_EQ(fs.read_file(directory / "tiny.gguf"), golden) << piece;
  }
}

TEST(Gguf, MissingAndExtraBytesAreErrors) {
  const test::TempDirectory directory;
  const std::vector<std::byte> data = golden_data();
  GgufWriter writer(posix_file_system(), directory / "torn.gguf", golden_metadata(), kTensors);
  writer.append(std::span(data).first(data.size() - 1));
  EXPECT_THROW(writer.commit(), LogicError);
  EXPECT_THROW(writer.append(data), LogicError);
  EXPECT_THROW(GgufWriter(posix_file_system(), directory / "other.gguf", {},
                          {{"codes", StoredType::kU8, {4}}}),
               LogicError);
}

}  // namespace
}  // namespace mpt
