// Safetensors files: the layout to the byte, round trips, and every corruption an Error.
#include "core/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using test::TempDirectory;

void write_text(const std::string& path, std::string_view text) {
  const auto file = disk.create(path);
  file->append(bytes_of(text));
  file->close();
}

// Returns a file with the given header and data, and a correct length field.
std::string file_text(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

std::string small_file(const std::string& path) {
  SafetensorsWriter writer(disk, path,
                           {{"w", StoredType::kF32, {2, 3}},
                            {"s", StoredType::kU8, {}},
                            {"e", StoredType::kBF16, {0, 4}}},
                           {{"format", "pt"}});
  writer.append(bytes_of("abcdefghijklmnopqrstuvwxy"));
  writer.finish();
  return disk.read_file(path);
}

TEST(Safetensors, LayoutIsTheFormatsToTheByte) {
  const TempDirectory directory{test::memory_directory()};
  const std::string text = small_file(directory / "a");
  std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("s":{"dtype":"U8","shape":[],"data_offsets":[24,25]},"e":{"dtype":"BF16","shape":[0,4],"data_offsets":[25,25]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(text, file_text(header, "abcdefghijklmnopqrstuvwxy"));
}

TEST(Safetensors, RoundTripOfEveryTypeInAnyPieces) {
  const std::vector<StoredTensorInfo> tensors{
      {"f32", StoredType::kF32, {3}},       {"bf16", StoredType::kBF16, {5, 1}},
      {"i32", StoredType::kI32, {1, 2, 3}}, {"u8", StoredType::kU8, {7}},
      {"f16", StoredType::kF16, {1}},       {"f8", StoredType::kF8E4M3, {2, 2}},
      {"i16", StoredType::kI16, {3}},       {"i8", StoredType::kI8, {5}},
      {"e8m0", StoredType::kF8E8M0, {3}},   {"scalar", StoredType::kF32, {}},
      {"empty", StoredType::kF32, {4, 0}},  {"\xC3\xA9 \"q\\", StoredType::kU8, {1}}};
  int64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.bytes();
  ASSERT_EQ(total, 12 + 10 + 24 + 7 + 2 + 4 + 6 + 5 + 3 + 4 + 0 + 1);
  std::string data(static_cast<size_t>(total), '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37 + 1);

  std::string first_hash;
  for (const size_t piece : {1, 3, 64}) {
    const TempDirectory directory{test::memory_directory()};
    SafetensorsWriter writer(disk, directory / "a", tensors,
                             {{"k", "v"}, {"quote\"", "line\nbreak"}});
    for (size_t at = 0; at < data.size(); at += piece)
      writer.append(bytes_of(std::string_view(data).substr(at, piece)));
    const auto summary = writer.finish();
    EXPECT_EQ(summary.bytes, disk.file_size(directory / "a"));
    EXPECT_EQ(summary.hash, hash_file(disk, directory / "a"));
    if (first_hash.empty()) first_hash = summary.hash;
    EXPECT_EQ(summary.hash, first_hash);

    const SafetensorsReader reader(disk, directory / "a");
    EXPECT_EQ(reader.metadata(), (SafetensorsMetadata{{"k", "v"}, {"quote\"", "line\nbreak"}}));
    ASSERT_EQ(reader.tensors().size(), tensors.size());
    size_t offset = 0;
    for (const auto& tensor : tensors) {
      const auto& entry = reader.at(tensor.name);
      EXPECT_EQ(entry.type, tensor.type);
      EXPECT_EQ(entry.shape, tensor.shape);
      const std::vector<std::byte> bytes = reader.read(entry);
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), tensor.bytes());
      EXPECT_TRUE(std::ranges::equal(bytes, bytes_of(data).subspan(offset, bytes.size())))
          << tensor.name;
      offset += bytes.size();
    }
  }
}

TEST(Safetensors, ReadsRanges) {
  const TempDirectory directory{test::memory_directory()};
  small_file(directory / "a");
  const SafetensorsReader reader(disk, directory / "a");
  std::string part(4, '\0');
  const auto target = std::as_writable_bytes(std::span(part));
  reader.read(reader.at("w"), 20, target);
  EXPECT_EQ(part, "uvwx");
  EXPECT_THROW(reader.read(reader.at("w"), 21, target), LogicError);
  EXPECT_THROW(reader.read(reader.at("w"), -1, target), LogicError);
  EXPECT_EQ(reader.find("x"), nullptr);
  EXPECT_ERROR((void)reader.at("x"), directory / "a", "no tensor 'x'");
}

TEST(Safetensors, NoTensorsAtAll) {
  const TempDirectory directory{test::memory_directory()};
  SafetensorsWriter writer(disk, directory / "a", {});
  writer.finish();
  EXPECT_EQ(disk.read_file(directory / "a"), file_text("{}      ", ""));
  EXPECT_TRUE(SafetensorsReader(disk, directory / "a").tensors().empty());
}

TEST(Safetensors, DataBeginAlignedForAnyNameLength) {
  for (size_t length = 1; length <= 17; ++length) {
    const TempDirectory directory{test::memory_directory()};
    SafetensorsWriter writer(disk, directory / "a",
                             {{std::string(length, 'n'), StoredType::kU8, {1}}});
    writer.append(bytes_of("x"));
    writer.finish();
    EXPECT_EQ(SafetensorsReader(disk, directory / "a").tensors()[0].begin % 8, 0);
  }
}

TEST(Safetensors, WriterHoldsItsCallerToTheDeclaration) {
  const TempDirectory directory{test::memory_directory()};
  const auto make = [&](std::vector<StoredTensorInfo> tensors) {
    return SafetensorsWriter(disk, directory / "a", tensors);
  };
  EXPECT_THROW(make({{"a", StoredType::kU8, {1}}, {"a", StoredType::kU8, {1}}}), LogicError);
  EXPECT_THROW(make({{"", StoredType::kU8, {1}}}), LogicError);
  EXPECT_THROW(make({{"__metadata__", StoredType::kU8, {1}}}), LogicError);
  EXPECT_THROW(make({{"a", StoredType::kU8, {-1}}}), LogicError);
  EXPECT_THROW(make({{"a", StoredType::kF32, {int64_t{1} << 40, int64_t{1} << 40}}}), LogicError);
  SafetensorsWriter writer = make({{"a", StoredType::kU8, {3}}});
  writer.append(bytes_of("xy"));
  EXPECT_THROW(writer.finish(), LogicError);
  EXPECT_THROW(writer.append(bytes_of("zz")), LogicError);
  writer.append(bytes_of("z"));
  writer.finish();
}

TEST(Safetensors, WriterPassesOnWhatTheFileSystemSays) {
  const TempDirectory directory{test::memory_directory()};
  for (int64_t n = 1; n <= 6; ++n) {  // create, length, header, data, sync, close
    test::FaultFileSystem faulty(disk);
    faulty.fail_at(n, test::Fault::kError);
    const auto write = [&] {
      SafetensorsWriter writer(faulty, directory / "a", {{"a", StoredType::kU8, {1}}});
      writer.append(bytes_of("x"));
      writer.finish();
    };
    EXPECT_ERROR(write(), fmt::format("operation {}", n));
  }
}

struct BadHeader {
  const char* name;
  std::string header;
  const char* complaint;
};
class BadSafetensors : public testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensors, IsAnErrorNamingFileAndDefect) {
  const TempDirectory directory{test::memory_directory()};
  write_text(directory / "a", file_text(GetParam().header, "12345678"));
  EXPECT_ERROR(SafetensorsReader(disk, directory / "a"), directory / "a", GetParam().complaint);
}

// Returns "a,a,...", with the number of each for "{}".
std::string many(int64_t count, const std::string& element) {
  std::string list;
  for (int64_t i = 0; i < count; ++i)
    list += fmt::format(fmt::runtime((i > 0 ? "," : "") + element), i);
  return list;
}

std::string one(const std::string& fields) { return fmt::format(R"({{"t":{{{}}}}})", fields); }

INSTANTIATE_TEST_SUITE_P(
    Headers, BadSafetensors,
    testing::Values(
        BadHeader{"empty", "", "not valid JSON"}, BadHeader{"spaces", "        ", "not valid JSON"},
        BadHeader{"garbage", "hello", "not valid JSON"},
        BadHeader{"unclosed", R"({"t":)", "not valid JSON"},
        BadHeader{"trailing", "{} x", "not valid JSON"},
        BadHeader{"utf8", "{\"\xFF\":1}", "not valid JSON"},
        BadHeader{"number", "1", "not a JSON object"}, BadHeader{"list", "[]", "not a JSON object"},
        BadHeader{"deep", std::string(100000, '['), "not a JSON object"},
        BadHeader{"entry_of_lists", R"({"t":)" + std::string(100000, '['), "needs exactly"},
        BadHeader{"entry_list", R"({"t":[1,2]})", "needs exactly dtype, shape and data_offsets"},
        BadHeader{"field_object", one(R"("dtype":"U8","shape":{"a":8},"data_offsets":[0,8])"),
                  "nested too deeply"},
        BadHeader{"many_fields", R"({"t":{)" + many(100000, R"("{}":0)") + "}}", "needs exactly"},
        BadHeader{"many_dimensions", one(R"("dtype":"U8","shape":[)" + many(1'000'000, "1") + "]"),
                  "a list of more than 64 elements"},
        BadHeader{"metadata_nested", R"({"__metadata__":{"a":[]}})", "key 'a' is not a string"},
        BadHeader{"metadata_twice", R"({"__metadata__":{"a":"","a":""}})", R"(the key "a" twice)"},
        BadHeader{"no_tensor_for_data", "{}", "take 0 bytes of data, the file has 8"},
        BadHeader{"not_an_object", R"({"t":1})", "needs exactly dtype, shape and data_offsets"},
        BadHeader{"missing_field", one(R"("dtype":"U8","shape":[8])"), "needs exactly"},
        BadHeader{"other_field", one(R"("dtype":"U8","shape":[8],"offsets":[0,8])"),
                  "has no data_offsets"},
        BadHeader{"extra_field", one(R"("dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1)"),
                  "needs exactly"},
        BadHeader{"dtype", one(R"("dtype":"I64","shape":[1],"data_offsets":[0,8])"),
                  R"(dtype "I64"; supported: F32)"},
        BadHeader{"dtype_number", one(R"("dtype":8,"shape":[8],"data_offsets":[0,8])"),
                  "dtype is not a string"},
        BadHeader{"shape_text", one(R"("dtype":"U8","shape":"8","data_offsets":[0,8])"),
                  "shape is not a list"},
        BadHeader{"shape_negative", one(R"("dtype":"U8","shape":[-8],"data_offsets":[0,8])"),
                  "shape contains -8"},
        BadHeader{"shape_fraction", one(R"("dtype":"U8","shape":[8.0],"data_offsets":[0,8])"),
                  "shape contains 8.0"},
        BadHeader{"shape_nested", one(R"("dtype":"U8","shape":[[8]],"data_offsets":[0,8])"),
                  "nested too deeply"},
        BadHeader{"shape_huge",
                  one(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8])"),
                  "shape contains"},
        BadHeader{"product_overflows",
                  one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
                  "does not match the 8 bytes"},
        BadHeader{"shape_too_small", one(R"("dtype":"U8","shape":[7],"data_offsets":[0,8])"),
                  "U8 [7] does not match"},
        BadHeader{"shape_other_type", one(R"("dtype":"F32","shape":[8],"data_offsets":[0,8])"),
                  "F32 [8] does not match"},
        BadHeader{"offsets_three", one(R"("dtype":"U8","shape":[8],"data_offsets":[0,8,8])"),
                  "needs 2 numbers, has 3"},
        BadHeader{"offsets_reversed", one(R"("dtype":"U8","shape":[8],"data_offsets":[8,0])"),
                  "bytes 8 to 0"},
        BadHeader{"offsets_beyond", one(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])"),
                  "bytes 0 to 9 are not within"},
        BadHeader{"hole_before", one(R"("dtype":"U8","shape":[7],"data_offsets":[1,8])"),
                  "begins at data byte 1"},
        BadHeader{"bytes_after", one(R"("dtype":"U8","shape":[7],"data_offsets":[0,7])"),
                  "take 7 bytes of data"},
        BadHeader{
            "overlap",
            R"({"t":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"u":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            "tensor 'u' begins at data byte 4"},
        BadHeader{
            "same_bytes",
            R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"u":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
            "begins at data byte 0"},
        BadHeader{
            "tensor_twice",
            R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            R"(the key "t" twice)"},
        BadHeader{"dtype_twice",
                  one(R"("dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8])"),
                  R"(the key "dtype" twice)"},
        BadHeader{"metadata_list", R"({"__metadata__":[]})", "__metadata__ is not a JSON object"},
        BadHeader{"metadata_number", R"({"__metadata__":{"a":1}})", "key 'a' is not a string"}),
    [](const auto& test) { return std::string(test.param.name); });

// A parser that rescans a list at each of its elements would take hours.
TEST(Safetensors, HeadersOfManyTensorsAreReadInProportionToTheirSize) {
  const TempDirectory directory{test::memory_directory()};
  const std::string tensor = R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  write_text(directory / "a", file_text("{" + many(200'000, tensor) + "}", ""));
  EXPECT_EQ(SafetensorsReader(disk, directory / "a").tensors().size(), 200'000u);
}

TEST(Safetensors, LengthFieldIsCheckedBeforeAnythingIsAllocated) {
  const TempDirectory directory{test::memory_directory()};
  for (const char* start : {"", "\x01", "\0\0\0\0\0\0\0"}) {
    write_text(directory / "a", start);
    EXPECT_ERROR(SafetensorsReader(disk, directory / "a"), directory / "a", "too few");
  }
  for (const uint64_t length :
       {uint64_t{9}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}}) {
    std::string text = file_text("{}      ", "");
    std::memcpy(text.data(), &length, 8);
    write_text(directory / "a", text);
    EXPECT_ERROR(SafetensorsReader(disk, directory / "a"), directory / "a", std::to_string(length));
  }
  EXPECT_ERROR(SafetensorsReader(disk, directory.path()), directory.path(), "is a directory");
  EXPECT_ERROR(SafetensorsReader(disk, directory / "b"), directory / "b", "No such file");
}

// Opens and reads all; anything but success or an Error fails the test. Returns whether it
// succeeded.
bool opens(const std::string& path) {
  try {
    const SafetensorsReader reader(disk, path);
    for (const auto& entry : reader.tensors()) (void)reader.read(entry);
    return true;
  } catch (const Error& caught) {
    EXPECT_NE(std::string(caught.what()).find(path), std::string::npos) << caught.what();
    return false;
  }
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const TempDirectory directory{test::memory_directory()};
  const std::string text = small_file(directory / "a");
  for (size_t length = 0; length < text.size(); ++length) {
    write_text(directory / "a", text.substr(0, length));
    EXPECT_FALSE(opens(directory / "a")) << length;
  }
  write_text(directory / "a", text + "x");
  EXPECT_FALSE(opens(directory / "a"));
}

TEST(Safetensors, EveryFlippedBitOpensOrIsAnError) {
  const TempDirectory directory{test::memory_directory()};
  const std::string text = small_file(directory / "a");
  int64_t opened = 0;
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    write_text(directory / "a", changed);
    opened += opens(directory / "a") ? 1 : 0;
  }
  EXPECT_GE(opened, 8 * 25);  // flips of data cannot be seen here
  EXPECT_LT(opened, static_cast<int64_t>(8 * text.size()) / 2);
}

TEST(Safetensors, RandomDamageOpensOrIsAnError) {
  const TempDirectory directory{test::memory_directory()};
  const std::string text = small_file(directory / "a");
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = text;
    for (uint64_t count = 1 + random() % 8; count > 0; --count) {
      const size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed[at] = "{}[],:\"0129-.e"[random() % 14];
          break;
        case 2:
          changed.erase(at, 1 + random() % 4);
          break;
        default:
          changed.insert(at, changed.substr(random() % changed.size(), random() % 16));
      }
      if (changed.empty()) changed.push_back('x');
    }
    if (changed.size() > 8 && random() % 2 == 0) {  // a length field that is about right
      const uint64_t length = changed.size() - 8 - std::min<size_t>(changed.size() - 8, 25);
      std::memcpy(changed.data(), &length, 8);
    }
    write_text(directory / "a", changed);
    opens(directory / "a");
  }
}

}  // namespace
}  // namespace mpt
