// Token shards: round trips, every damage to header and size, 64-bit offsets, vocabulary checks.
#include "data/token_shard.h"

#include <cstring>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/data_files.h"

namespace mpt {
namespace {

using test::expect_error;
using test::fresh_directory;

std::vector<int32_t> all_of(const TokenShard& shard) {
  std::vector<int32_t> tokens(static_cast<size_t>(shard.tokens()));
  shard.read(0, tokens, INT32_MAX);
  return tokens;
}

TEST(TokenShard, RoundTripsBothWidthsAndManyCounts) {
  const std::string path = fresh_directory() + "/shard.bin";
  for (const int64_t count : {1, 2, 3, 255, 65537, 600001}) {
    for (const TokenWidth width : {TokenWidth::kUint16, TokenWidth::kUint32}) {
      const auto tokens =
          test::counting_tokens(count, 3, width == TokenWidth::kUint16 ? 65536 : 200000);
      test::write_shard(path, tokens, width);
      const TokenShard shard(path);
      EXPECT_EQ(shard.width(), width);
      EXPECT_EQ(all_of(shard), tokens);
      EXPECT_EQ(std::filesystem::file_size(path),
                1024 + static_cast<size_t>(count * bytes_of(width)));
    }
  }
}

TEST(TokenShard, BytesAreThoseOfTheFormat) {
  const std::string path = test::write_shard(fresh_directory() + "/s.bin", {1, 258, 65535});
  const std::string bytes = test::read_text(path);
  std::string expected(1024, '\0');
  const int32_t header[3] = {20240520, 1, 3};
  std::memcpy(expected.data(), header, sizeof header);
  EXPECT_EQ(bytes, expected + std::string("\x01\x00\x02\x01\xff\xff", 6));
  const std::string wide = test::write_shard(path, {1, 128000}, TokenWidth::kUint32);
  const int32_t wide_header[3] = {20240801, 7, 2};
  std::memcpy(expected.data(), wide_header, sizeof wide_header);
  EXPECT_EQ(test::read_text(wide), expected + std::string("\x01\x00\x00\x00\x00\xf4\x01\x00", 8));
}

TEST(TokenShard, AppendsInPiecesHashAsAtOnce) {
  const std::string directory = fresh_directory();
  const auto tokens = test::counting_tokens(1000);
  TokenShardWriter pieces(directory + "/pieces.bin", TokenWidth::kUint16);
  for (size_t i = 0; i < tokens.size(); i += 100) pieces.append(std::span(tokens).subspan(i, 100));
  const std::string hash = pieces.commit();
  const TokenShard whole(test::write_shard(directory + "/whole.bin", tokens));
  EXPECT_EQ(hash, whole.content_hash());
  EXPECT_EQ(test::read_text(directory + "/pieces.bin"), test::read_text(whole.path()));
}

// Dropped without commit(), before and after it, and with more after the saved part.
TEST(TokenShard, GoesOnBehindWhatWasSaved) {
  const std::string directory = fresh_directory();
  for (const TokenWidth width : {TokenWidth::kUint16, TokenWidth::kUint32}) {
    const auto tokens = test::counting_tokens(3'000'000);
    const auto all = std::span(tokens);
    const std::string path = directory + "/a.bin", whole = directory + "/whole.bin";
    test::write_shard(whole, tokens, width);
    TokenShardWriter::Saved saved;
    {
      TokenShardWriter writer(path, width);
      writer.append(all.first(1'000'001));
      saved = writer.save();
      writer.append(all.subspan(1'000'001, 700'000));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    for (int i = 0; i < 2; ++i) {  // the second time from the complete shard
      TokenShardWriter writer(path, width, saved, posix_file_system());
      EXPECT_EQ(writer.tokens(), saved.tokens);
      writer.append(all.subspan(1'000'001));
      writer.commit();
      EXPECT_EQ(test::read_text(path), test::read_text(whole));
    }
    saved.hash[0] = saved.hash[0] == '0' ? '1' : '0';
    expect_error([&] { TokenShardWriter(path, width, saved, posix_file_system()); },
                 {"a.bin.tmp: its first 1000001 tokens are not those that were saved"});
    saved.tokens = 4'000'000;
    expect_error([&] { TokenShardWriter(path, width, saved, posix_file_system()); },
                 {"a.bin.tmp: ends at byte"});
    std::filesystem::remove(path + ".tmp");
  }
}

TEST(TokenShard, HeaderWordsBehindTheCountAreIgnored) {
  const std::string path = test::write_shard(fresh_directory() + "/s.bin", {5, 6});
  std::string bytes = test::read_text(path);
  std::fill(bytes.begin() + 12, bytes.begin() + 1024, '\xA5');
  test::write_text(path, bytes);
  EXPECT_EQ(all_of(TokenShard(path)), (std::vector<int32_t>{5, 6}));
}

struct Damage {
  const char* name;
  int word;
  int32_t value;
  std::vector<std::string> message;
};

TEST(TokenShard, EveryDamagedHeaderWordIsNamed) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(10));
  const std::string good = test::read_text(path);
  const std::vector<Damage> damages{
      {"zero magic", 0, 0, {path, "word 0 is 0", "20240520", "20240801"}},
      {"other magic", 0, 20240521, {path, "20240521"}},
      {"the checkpoint magic of llm.c", 0, 20240326, {path, "20240326"}},
      {"version 0", 1, 0, {path, "word 1", "version 0", "version 1"}},
      {"version of the other format", 1, 7, {path, "version 7"}},
      {"magic of the other format", 0, 20240801, {path, "version 1", "version 7"}},
      {"no tokens", 2, 0, {path, "word 2", "0 tokens"}},
      {"negative tokens", 2, -10, {path, "-10 tokens"}},
      {"one more than there are", 2, 11, {path, "1044 bytes", "1046", "truncated"}},
      {"one less than there are", 2, 9, {path, "1042", "too long"}},
      {"the most a count can be", 2, INT32_MAX, {path, "truncated"}},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::string bytes = good;
    std::memcpy(bytes.data() + 4 * damage.word, &damage.value, 4);
    test::write_text(path, bytes);
    expect_error([&] { TokenShard shard(path); }, damage.message);
  }
}

TEST(TokenShard, WrongSizesMissingFilesAndDirectories) {
  const std::string directory = fresh_directory();
  const std::string path = test::write_shard(directory + "/s.bin", test::counting_tokens(10));
  const std::string good = test::read_text(path);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{12}, size_t{1023}}) {
    test::write_text(path, good.substr(0, size));
    expect_error([&] { TokenShard shard(path); }, {path, fmt::format("{} bytes", size), "too few"});
  }
  for (const size_t size : {size_t{1024}, size_t{1043}}) {
    test::write_text(path, good.substr(0, size));
    expect_error([&] { TokenShard shard(path); }, {path, "truncated"});
  }
  test::write_text(path, good + "x");
  expect_error([&] { TokenShard shard(path); }, {path, "too long"});
  expect_error([&] { TokenShard shard(directory + "/none.bin"); }, {"none.bin", "no such file"});
  expect_error([&] { TokenShard shard(directory); }, {directory, "directory"});
}

// Within a page of memory and beyond it.
TEST(TokenShard, OneThatShrinksIsAnErrorThatNamesIt) {
  for (const int64_t tokens : {100, 100'000}) {
    const std::string path =
        test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(tokens, 0, 100));
    const TokenShard shard(path);
    std::filesystem::resize_file(path, 1024 + 60);
    std::vector<int32_t> out(30);
    EXPECT_NO_THROW(shard.read(0, out, 100)) << "what is left";
    expect_error([&] { shard.read(1, out, 100); }, {path, "ends at byte 1084"});
    expect_error([&] { shard.check_tokens_below(100); }, {path, "ends at byte 1084"});
    expect_error([&] { (void)shard.content_hash(); }, {path, "ends at byte 1084"});
  }
}

// Thousands of shards under a low limit on open files, as in a container.
TEST(TokenShard, MoreThanFilesThatMayBeOpenAreRead) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(100, 0, 100));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<TokenShard> shards;
  for (int i = 0; i < 200; ++i) shards.emplace_back(path);
  for (const TokenShard& shard : shards) EXPECT_EQ(all_of(shard).size(), 100U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(TokenShard, TokenOutsideTheVocabularyIsNamedWithItsPosition) {
  auto tokens = test::counting_tokens(200000, 0, 1000);
  tokens[150001] = 1000;
  const TokenShard shard(test::write_shard(fresh_directory() + "/s.bin", tokens));
  EXPECT_NO_THROW(shard.check_tokens_below(1001));
  expect_error([&] { shard.check_tokens_below(1000); },
               {shard.path(), "token 1000 ", "position 150001", "0 to 999"});
  std::vector<int32_t> out(10);
  EXPECT_NO_THROW(shard.read(149990, out, 1000));
  expect_error([&] { shard.read(149999, out, 1000); }, {"position 150001"});
}

TEST(TokenShard, Uint32TokenAboveInt32IsAnErrorNotNegative) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", {1, 2, 3}, TokenWidth::kUint32);
  std::string bytes = test::read_text(path);
  bytes.replace(1028, 4, "\xff\xff\xff\xff");
  test::write_text(path, bytes);
  const TokenShard shard(path);
  std::vector<int32_t> out(3);
  expect_error([&] { shard.read(0, out, INT32_MAX); }, {"token 4294967295", "position 1"});
}

TEST(TokenShard, OffsetsHave64Bits) {
  const std::string path = fresh_directory() + "/sparse.bin";
  const int64_t tokens =
      1'200'000'000;  // 2.4 GB of uint16, only the ends of which take up disk space
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0644);
  const int32_t header[3] = {20240520, 1, static_cast<int32_t>(tokens)};
  const uint16_t last[2] = {123, 456};
  if (::ftruncate(file, 1024 + 2 * tokens) != 0)
    GTEST_SKIP() << "no room for a sparse file of 2.4 GB";
  ASSERT_EQ(::pwrite(file, header, sizeof header, 0), ssize_t{sizeof header});
  ASSERT_EQ(::pwrite(file, last, sizeof last, 1024 + 2 * (tokens - 2)), ssize_t{sizeof last});
  ::close(file);
  {
    const TokenShard shard(path);
    EXPECT_EQ(shard.tokens(), tokens);
    std::vector<int32_t> out(3);
    shard.read(tokens - 3, out, 1000);
    EXPECT_EQ(out, (std::vector<int32_t>{0, 123, 456}));
    expect_error([&] { shard.read(tokens - 3, out, 456); }, {"token 456", "position 1199999999"});
  }
  std::filesystem::remove(path);
}

TEST(TokenShard, ReadingOutsideTheShardIsABug) {
  const TokenShard shard(test::write_shard(fresh_directory() + "/s.bin", {1, 2, 3}));
  std::vector<int32_t> out(2);
  EXPECT_THROW(shard.read(2, out, 10), LogicError);
  EXPECT_THROW(shard.read(-1, out, 10), LogicError);
  EXPECT_NO_THROW(shard.read(3, std::span<int32_t>(), 10));
}

TEST(TokenShardWriter, UncommittedShardLeavesNothing) {
  const std::string directory = fresh_directory();
  {
    TokenShardWriter writer(directory + "/s.bin", TokenWidth::kUint16);
    writer.append(test::counting_tokens(2'000'000));
    EXPECT_FALSE(std::filesystem::exists(directory + "/s.bin"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST(TokenShardWriter, UncommittedShardKeepsTheOlderOne) {
  const std::string path = test::write_shard(fresh_directory() + "/s.bin", {7, 8});
  {
    TokenShardWriter writer(path, TokenWidth::kUint16);
    writer.append(test::counting_tokens(5));
  }
  EXPECT_EQ(all_of(TokenShard(path)), (std::vector<int32_t>{7, 8}));
}

TEST(TokenShardWriter, RefusesNoTokensAndTokensThatDoNotFit) {
  const std::string directory = fresh_directory();
  TokenShardWriter empty(directory + "/empty.bin", TokenWidth::kUint16);
  expect_error([&] { empty.commit(); }, {"empty.bin", "at least one token"});
  TokenShardWriter narrow(directory + "/narrow.bin", TokenWidth::kUint16);
  EXPECT_THROW(narrow.append(std::vector<int32_t>{65536}), LogicError);
  EXPECT_THROW(narrow.append(std::vector<int32_t>{-1}), LogicError);
  expect_error([&] { TokenShardWriter writer(directory + "/no/such/s.bin", TokenWidth::kUint16); },
               {"no/such/s.bin", "cannot be opened"});
  expect_error([&] { TokenShardWriter writer(directory, TokenWidth::kUint16); },
               {directory, "is a directory"});
}

TEST(TokenShardWriter, FullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const std::string directory = fresh_directory();
  std::filesystem::create_symlink("/dev/full", directory + "/s.bin.tmp");
  TokenShardWriter writer(directory + "/s.bin", TokenWidth::kUint16);
  writer.append(test::counting_tokens(10));
  expect_error([&] { writer.commit(); }, {"s.bin", "failed"});
}

TEST(TokenShard, WidthFollowsTheVocabulary) {
  EXPECT_EQ(token_width_for(1), TokenWidth::kUint16);
  EXPECT_EQ(token_width_for(65536), TokenWidth::kUint16);
  EXPECT_EQ(token_width_for(65537), TokenWidth::kUint32);
}

}  // namespace
}  // namespace mpt
