// Parquet files of another program (tests/golden/make_parquet_golden.py): each gives the documents
// of the same text as JSON lines, with every kind of packing; damaged, truncated and foreign files
// are named.
#include <array>
#include <cstring>

#include "data/data_files.h"
#include "text/corpus/corpus.h"
#include "text/corpus/parquet/compact_protocol.h"
#include "text/corpus/parquet/page.h"
#include "text/corpus/parquet/values.h"

namespace mpt {
namespace {

using test::expect_error;
using test::fresh_directory;
using test::read_text;
using test::write_text;

struct Read {
  std::vector<std::string> documents{};
  CorpusStats stats{};
};

Read read(const CorpusOptions& options) {
  CorpusReader corpus(options);
  Read read;
  for (std::string text; corpus.next(text);) read.documents.push_back(text);
  EXPECT_EQ(corpus.input_bytes_read(), corpus.input_bytes());
  read.stats = corpus.stats();
  return read;
}

std::string parquet_golden(const std::string& name) {
  return std::string(MPT_SOURCE_DIR) + "/tests/golden/parquet/" + name;
}

class Parquet : public testing::TestWithParam<const char*> {};

TEST_P(Parquet, HasTheDocumentsOfTheSameTextAsJsonLines) {
  const std::string path = parquet_golden(GetParam() + std::string(".parquet"));
  for (const int64_t limit : {16, 100, 1 << 20}) {
    const Read expected =
        read({.patterns = {parquet_golden("documents.jsonl")}, .max_document_bytes = limit});
    const Read found = read({.patterns = {path}, .max_document_bytes = limit});
    EXPECT_EQ(found.documents, expected.documents);
    EXPECT_TRUE(found.stats == expected.stats);
    EXPECT_GT(expected.documents.size(), 80u);
    EXPECT_GE(expected.stats.empty, 8);  // including nulls
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Parquet,
                         testing::Values("none_v1", "none_v2", "snappy_v1", "snappy_v2", "gzip_v1",
                                         "gzip_v2", "zstd_v1", "zstd_v2", "plain_v1", "plain_v2",
                                         "delta_length_byte_array_v1", "delta_length_byte_array_v2",
                                         "delta_byte_array_v1", "delta_byte_array_v2", "fallback",
                                         "checksums", "required", "required_v2", "large_strings",
                                         "binary", "categories"),
                         [](const auto& file) { return file.param; });

TEST(ParquetFiles, HaveNoDocumentsWhereTheyHaveNoText) {
  EXPECT_TRUE(read({.patterns = {parquet_golden("no_rows.parquet")}}).stats == CorpusStats{});
  // Null strings, and a column of Arrow's type null, as written if no row has a text.
  for (const char* name : {"nulls.parquet", "null_type.parquet"})
    EXPECT_TRUE(read({.patterns = {parquet_golden(name)}}).stats == CorpusStats{.empty = 100})
        << name;
}

TEST(ParquetFiles, AreKnownByContentAndByAs) {
  const std::string content = read_text(parquet_golden("snappy_v1.parquet"));
  const auto expected = read({.patterns = {parquet_golden("snappy_v1.parquet")}}).documents;
  const std::string directory = fresh_directory();
  EXPECT_EQ(read({.patterns = {write_text(directory + "/a.txt", content)}}).documents, expected);
  const std::string other = write_text(directory + "/a.pq", content);
  EXPECT_EQ(read({.patterns = {other}, .as = TextKind::kParquet}).documents, expected);
  expect_error([&] { read({.patterns = {other}}); }, {other, "unknown kind", ".parquet", "--as"});
}

TEST(ParquetFiles, WhatIsNotReadIsRefusedByName) {
  const auto refuse = [](const std::string& file, const std::vector<std::string>& parts,
                         const std::string& field = "text") {
    SCOPED_TRACE(file);
    expect_error([&] { read({.patterns = {parquet_golden(file)}, .text_field = field}); }, parts);
  };
  refuse("lz4.parquet", {"lz4.parquet: ", "codec LZ4", "snappy, gzip or zstd"});
  refuse("brotli.parquet", {"brotli.parquet: ", "codec brotli"});
  refuse("no_text.parquet", {"no column 'text'; the file has: id, meta, tags, score"});
  refuse("nested_text.parquet", {"nested_text.parquet: column 'text' is nested"});
  refuse("number_text.parquet", {"column 'text' holds no text (type 5"});
  refuse("fixed_length.parquet", {"column 'text' holds no text (type 7"});
  refuse("snappy_v1.parquet", {"column 'meta' is nested"}, "meta");
  refuse("bad_utf8.parquet", {"bad_utf8.parquet: row 2: not valid UTF-8", "0xff"});
  const Read skipped = read(
      {.patterns = {parquet_golden("bad_utf8.parquet")}, .on_bad_document = OnBadDocument::kSkip});
  EXPECT_EQ(skipped.documents, (std::vector<std::string>{"good", "fine"}));
  EXPECT_EQ(skipped.stats.bad, 1);
  const std::string overlapping =
      MPT_SOURCE_DIR "/tests/fuzz/corpus/parquet_corpus/row_groups_overlap";
  expect_error([&] { read({.patterns = {overlapping}, .as = TextKind::kParquet}); },
               {overlapping, "row groups overlap"});
  const std::string packed = write_text(fresh_directory() + "/a.parquet.gz", "any");
  expect_error([&] { read({.patterns = {packed}}); }, {packed, "unpack it"});
}

TEST(ParquetFiles, ForeignAndTruncatedOnesAreNamed) {
  const std::string path = fresh_directory() + "/a.parquet";
  const std::string good = read_text(parquet_golden("snappy_v1.parquet"));
  const auto refuse = [&](const std::string& content, const std::string& part) {
    write_text(path, content);
    expect_error([&] { read({.patterns = {path}}); }, {path + ": ", part});
  };
  refuse("", "is not a Parquet file");
  refuse("PAR", "is not a Parquet file");
  refuse("{\"text\":\"a\"}\n", "is not a Parquet file");
  refuse("PAR1", "is truncated");
  refuse("PAR1PAR1", "is truncated");
  for (const size_t size : {good.size() - 1, good.size() / 2, size_t{100}})
    refuse(good.substr(0, size), "is truncated");
  refuse("PARE" + good.substr(4), "is an encrypted Parquet file");
  refuse(good.substr(0, good.size() - 4) + "PARE", "is an encrypted Parquet file");
  std::string claims = good;
  std::memcpy(claims.data() + claims.size() - 8, "\xff\xff\xff\x7f", 4);
  refuse(claims, "its footer claims 2147483647 bytes");
}

// Changes every byte of a small file in turn: it is read as some other text or refused by name, and
// with checksums no other text is possible outside the footer.
TEST(ParquetFiles, NoChangedByteIsWorseThanAnError) {
  const std::string path = fresh_directory() + "/a.parquet";
  for (const char* name : {"bad_utf8.parquet", "no_rows.parquet"}) {
    const std::string good = read_text(parquet_golden(name));
    for (size_t i = 0; i < good.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string changed = good;
        changed[i] = static_cast<char>(changed[i] ^ change);
        write_text(path, changed);
        try {
          CorpusReader corpus({.patterns = {path}, .on_bad_document = OnBadDocument::kSkip});
          for (std::string text; corpus.next(text);) {
          }
        } catch (const Error& refusal) {
          EXPECT_TRUE(std::string_view(refusal.what()).starts_with(path)) << refusal.what();
        }
      }
    }
  }
}

TEST(ParquetFiles, ChecksumsFindDamage) {
  const std::string path = fresh_directory() + "/a.parquet";
  std::string content = read_text(parquet_golden("checksums.parquet"));
  const size_t at = content.find("The same text in many rows.");
  ASSERT_NE(at, std::string::npos);
  content[at] = 't';
  write_text(path, content);
  expect_error([&] { read({.patterns = {path}}); },
               {path + ": row group 1 of 1 is damaged near row ", "checksum"});
}

TEST(HybridNumbers, RunsAndPackedNumbersOfTheSpecification) {
  // The numbers 0 to 7 in 3 bits, from Encodings.md, then four times 5.
  HybridNumbers numbers(std::string_view("\x03\x88\xc6\xfa\x08\x05", 6), 3);
  for (const uint32_t expected : {0, 1, 2, 3, 4, 5, 6, 7, 5, 5, 5, 5})
    EXPECT_EQ(numbers.next(), expected);
  EXPECT_THROW(numbers.next(), ParquetEndsEarly);
  EXPECT_THROW(HybridNumbers("", 33), ParquetDamage);
  EXPECT_THROW(HybridNumbers("", 1).next(), ParquetDamage);
  HybridNumbers wide(std::string_view("\x03\xff\xff\xff\xff\x01\x00\x00\x80", 9), 32);
  EXPECT_EQ(wide.next(), 0xffffffffu);
  EXPECT_EQ(wide.next(), 0x80000001u);
}

TEST(DeltaNumbers, ExamplesOfTheSpecification) {
  // 1, 2, 3, 4, 5: header 128, 4, 5, 1; one block: least difference 1 and widths of 0.
  const std::string five("\x80\x01\x04\x05\x02\x02\x00\x00\x00\x00rest", 14);
  std::string_view bytes = five;
  EXPECT_EQ(take_delta_numbers(bytes, 5), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(bytes, "rest");
  bytes = five;
  EXPECT_THROW(take_delta_numbers(bytes, 4), ParquetDamage);
  // 7, 5, 3, 1, 2, 3, 4, 5: least difference -2; 0 0 0 3 3 3 3 in 2 bits, 32 of them.
  const std::string eight(
      "\x80\x01\x04\x08\x0e\x03\x02\x00\x00\x00\xc0\x3f\x00\x00\x00\x00\x00\x00", 18);
  bytes = eight;
  EXPECT_EQ(take_delta_numbers(bytes, 100), (std::vector<int32_t>{7, 5, 3, 1, 2, 3, 4, 5}));
  for (size_t size = 0; size < eight.size(); ++size) {
    bytes = std::string_view(eight).substr(0, size);
    EXPECT_THROW(take_delta_numbers(bytes, 100), ParquetDamage);
  }
}

TEST(CompactProtocol, SkipsWhatNobodyAsksForAndStaysWithinItsBytes) {
  // 1: i32 5; 2: list of 2 structures; 3: map of i32 to binary; 4: true; 20: double; 21: binary.
  const std::string bytes(
      "\x15\x0a\x19\x2c\x15\x02\x00\x12\x00\x1b\x01\x58\x06\x02hi\x11\x07\x28"
      "12345678\x18\x03"
      "end\x00",
      33);
  CompactReader reader(bytes);
  std::vector<int64_t> seen;
  std::string_view last;
  reader.read_struct([&](const CompactReader::Field& field) {
    seen.push_back(field.id);
    if (field.id == 21) return last = reader.binary(field), true;
    return false;
  });
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3, 4, 20, 21}));
  EXPECT_EQ(last, "end");
  EXPECT_TRUE(reader.rest().empty());
  for (size_t size = 0; size < bytes.size(); ++size) {
    CompactReader part(std::string_view(bytes).substr(0, size));
    EXPECT_THROW(part.read_struct([](const CompactReader::Field&) { return false; }),
                 ParquetEndsEarly);
  }
  const std::string deep(1000, '\x1c');  // structures in structures
  EXPECT_THROW(CompactReader(deep).read_struct([](const auto&) { return false; }), ParquetDamage);
  const std::string many("\x19\xfc\xff\xff\xff\xff\x0f\x00", 8);  // a list of 2^32 - 1 structures
  EXPECT_THROW(CompactReader(many).read_struct([](const auto&) { return false; }), ParquetDamage);
}

}  // namespace
}  // namespace mpt
