// Sequences and batches: the contents of each row, independence of batch size, exact seeks, epochs,
// errors of the thread.
#include "data/dataloader.h"

#include <map>
#include <set>

#include "data/data_files.h"
#include "data/document_index.h"
#include "data/manifest.h"
#include "data/sequence_source.h"
#include "data/shuffle.h"
#include "data/token_stream.h"

namespace mpt {
namespace {

using test::expect_error;
using test::fresh_directory;
using Tokens = std::vector<int32_t>;

// 3 + 1 + 500 + 96 + 11 = 611 tokens that count up from 0, in shards of unequal size.
std::string write_counting_shards(const std::string& directory) {
  int32_t first = 0;
  for (int number = 0; const int64_t count : {3, 1, 500, 96, 11}) {
    test::write_shard(fmt::format("{}/part_{}.bin", directory, number++),
                      test::counting_tokens(count, first));
    first += static_cast<int32_t>(count);
  }
  return directory + "/part_*.bin";
}

SequenceOptions counting_options(const std::string& pattern) {
  return {.patterns = {pattern},
          .seq_len = 10,
          .shuffle = Shuffle::kYes,
          .seed = 3,
          .vocab_size = 1000};
}

std::shared_ptr<const SequenceSource> counting_source() {
  return std::make_shared<SequenceSource>(
      counting_options(write_counting_shards(fresh_directory())));
}

struct Row {
  Tokens tokens, targets;
};

Row row_of(const SequenceSource& source, int64_t sequence) {
  Row row{Tokens(static_cast<size_t>(source.seq_len())),
          Tokens(static_cast<size_t>(source.seq_len()))};
  source.read(sequence, {row.tokens, row.targets});
  return row;
}

TEST(TokenStream, ReadsAcrossShards) {
  const std::string directory = fresh_directory();
  write_counting_shards(directory);
  std::vector<std::string> paths;
  for (int i = 0; i < 5; ++i) paths.push_back(fmt::format("{}/part_{}.bin", directory, i));
  const TokenStream stream(paths, 1000);
  EXPECT_EQ(stream.tokens(), 611);
  for (int64_t first = 0; first <= 611; ++first) {
    for (const int64_t count : {0, 1, 4, 130}) {
      if (first + count > 611) continue;
      Tokens out(static_cast<size_t>(count));
      stream.read(first, out);
      ASSERT_EQ(out, test::counting_tokens(count, static_cast<int32_t>(first)));
    }
  }
  Tokens out(2);
  EXPECT_THROW(stream.read(610, out), LogicError);
}

TEST(SequenceSource, PackedRowsWithoutShuffleFollowTheStream) {
  SequenceOptions options = counting_options(write_counting_shards(fresh_directory()));
  options.shuffle = Shuffle::kNo;
  const SequenceSource source(options);
  EXPECT_EQ(source.sequences(), 61);
  EXPECT_EQ(source.tokens(), 611);
  for (int64_t s = 0; s < 130; ++s) {
    const auto first = static_cast<int32_t>(s % 61 * 10);
    EXPECT_EQ(row_of(source, s).tokens, test::counting_tokens(10, first));
    EXPECT_EQ(row_of(source, s).targets, test::counting_tokens(10, first + 1));
  }
}

TEST(SequenceSource, CountsSequencesAtTheEdges) {
  const std::string path = fresh_directory() + "/s.bin";
  for (const int64_t tokens : {11, 20, 21, 30, 31}) {
    test::write_shard(path, test::counting_tokens(tokens));
    EXPECT_EQ(SequenceSource(counting_options(path)).sequences(), (tokens - 1) / 10);
  }
  for (const int64_t tokens : {1, 2, 10}) {
    test::write_shard(path, test::counting_tokens(tokens));
    expect_error([&] { SequenceSource source(counting_options(path)); },
                 {path, fmt::format("{} tokens", tokens), "seq_len = 10", "11"});
  }
}

TEST(SequenceSource, EveryEpochHasEverySequenceOnceInItsOwnOrder) {
  const auto source = counting_source();
  std::set<Tokens> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<int32_t> firsts;
    Tokens order;
    for (int64_t i = 0; i < 61; ++i) {
      const int32_t first = row_of(*source, epoch * 61 + i).tokens[0];
      EXPECT_EQ(first, permuted_index({3, epoch}, 61, i) * 10);
      firsts.insert(first);
      order.push_back(first);
    }
    EXPECT_EQ(firsts.size(), 61u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4u);
}

// The order of every run ever started depends on these values.
TEST(SequenceSource, GoldenOrder) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(101));
  SequenceOptions options = counting_options(path);
  options.seed = 42;
  const SequenceSource source(options);
  Tokens firsts;
  for (int64_t s = 0; s < 20; ++s) firsts.push_back(row_of(source, s).tokens[0] / 10);
  EXPECT_EQ(firsts, (Tokens{5, 3, 4, 7, 6, 1, 9, 2, 0, 8, 8, 5, 9, 6, 2, 1, 0, 7, 4, 3}));
}

TEST(SequenceSource, VocabularyIsCheckedWhereTokensAreRead) {
  const std::string directory = fresh_directory();
  SequenceOptions options = counting_options(write_counting_shards(directory));
  options.vocab_size = 520;  // part_3 (504 to 599) holds tokens 520 and up
  options.shuffle = Shuffle::kNo;
  const SequenceSource source(options);
  EXPECT_NO_THROW(row_of(source, 50));
  expect_error([&] { row_of(source, 51); },
               {"part_3.bin", "token 520 ", "position 16", "0 to 519"});
  expect_error([&] { row_of(source, 52); }, {"part_3.bin"});
}

TEST(SequenceSource, BadOptionsAreErrors) {
  const std::string directory = fresh_directory();
  const SequenceOptions good = counting_options(write_counting_shards(directory));
  const auto refuse = [&](const std::function<void(SequenceOptions&)>& change,
                          const std::vector<std::string>& parts) {
    SequenceOptions options = good;
    change(options);
    expect_error([&] { SequenceSource source(options); }, parts);
  };
  refuse([](auto& o) { o.seq_len = 0; }, {"seq_len is 0"});
  refuse([](auto& o) { o.seq_len = -4; }, {"seq_len is -4"});
  refuse([](auto& o) { o.seq_len = int64_t{1} << 40; }, {"611 tokens"});
  refuse([](auto& o) { o.vocab_size = 0; }, {"vocab_size is 0"});
  refuse([](auto& o) { o.vocab_size = int64_t{1} << 31; }, {"vocab_size is 2147483648"});
  refuse([](auto& o) { o.pad_token = 1000; }, {"pad_token is 1000"});
  refuse([](auto& o) { o.pad_token = -1; }, {"pad_token is -1"});
  refuse([](auto& o) { o.patterns = {}; }, {"no input files"});
  refuse([&](auto& o) { o.patterns = {directory + "/train_*.bin"}; }, {"train_*.bin"});
  refuse([](auto& o) { o.pack = false; }, {"part_0.idx", "pack: false", "mpretrain tokenize"});
}

// Documents of the given lengths in shards of 10 tokens; token values count up.
std::string write_documents(const std::string& directory, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> starts;
  int64_t total = 0;
  for (const int64_t length : lengths) {
    starts.push_back(total);
    total += length;
  }
  for (int64_t first = 0; first < total; first += 10) {
    const int64_t count = std::min<int64_t>(10, total - first);
    const std::string path = fmt::format("{}/docs_{:02}.bin", directory, first / 10);
    test::write_shard(path, test::counting_tokens(count, static_cast<int32_t>(first)));
    std::vector<uint64_t> inside;
    for (const int64_t start : starts)
      if (start >= first && start < first + count)
        inside.push_back(static_cast<uint64_t>(start - first));
    write_document_index(index_path_of(path), inside, count);
  }
  return directory + "/docs_*.bin";
}

TEST(SequenceSource, OneDocumentARowIsCutAndPadded) {
  // T = 4: shorter, exactly T, exactly T + 1, longer, across three shards, a single token at the
  // end.
  const std::vector<int64_t> lengths{2, 4, 5, 6, 25, 1};
  SequenceOptions options{.patterns = {write_documents(fresh_directory(), lengths)},
                          .seq_len = 4,
                          .pack = false,
                          .shuffle = Shuffle::kNo,
                          .vocab_size = 1000,
                          .pad_token = 999};
  const SequenceSource source(options);
  ASSERT_EQ(source.sequences(), 6);
  const std::vector<Row> expected{
      {{0, 1, 999, 999}, {1, -1, -1, -1}},  {{2, 3, 4, 5}, {3, 4, 5, -1}},
      {{6, 7, 8, 9}, {7, 8, 9, 10}},        {{11, 12, 13, 14}, {12, 13, 14, 15}},
      {{17, 18, 19, 20}, {18, 19, 20, 21}}, {{42, 999, 999, 999}, {-1, -1, -1, -1}}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const Row row = row_of(source, static_cast<int64_t>(i));
    EXPECT_EQ(row.tokens, expected[i].tokens);
    EXPECT_EQ(row.targets, expected[i].targets);
  }
  EXPECT_EQ(read_batch(source, 0, 6).valid_targets, 1 + 3 + 4 + 4 + 4 + 0);
  options.seq_len = 60;
  const Row whole = row_of(SequenceSource(options), 4);
  EXPECT_EQ(Tokens(whole.tokens.begin(), whole.tokens.begin() + 25), test::counting_tokens(25, 17));
  EXPECT_EQ(Tokens(whole.targets.begin(), whole.targets.begin() + 24),
            test::counting_tokens(24, 18));
  EXPECT_EQ(whole.targets[24], kIgnoreTarget);
  EXPECT_EQ(whole.tokens[25], 999);
}

TEST(SequenceSource, ShardsWithoutADocumentStartCannotBeUnpacked) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(20));
  write_document_index(index_path_of(path), {}, 20);
  SequenceOptions options = counting_options(path);
  options.pack = false;
  expect_error([&] { SequenceSource source(options); }, {path, "no document begins"});
}

TEST(SequenceSource, ChecksTheManifestBesideTheShards) {
  const std::string directory = fresh_directory();
  const TokenShard shard(
      test::write_shard(directory + "/train_000000.bin", test::counting_tokens(100)));
  ManifestSplit split{.documents = 1, .tokens = 100, .text_bytes = 1, .unigram_entropy_nats = 1};
  split.shards = {{"train_000000.bin", 100, shard.content_hash()}};
  Manifest manifest;
  manifest.tokenizer = {"tokenizer.model", "abc", 500, 1, 2};
  manifest.splits["train"] = split;
  manifest.save(directory + "/manifest.json");
  SequenceOptions options = counting_options(shard.path());
  options.tokenizer_hash = "abc";
  EXPECT_NO_THROW(SequenceSource source(options));
  options.tokenizer_hash = "def";
  expect_error([&] { SequenceSource source(options); }, {"manifest.json", "abc", "def"});
  options.tokenizer_hash.reset();
  options.vocab_size = 499;
  expect_error([&] { SequenceSource source(options); }, {"manifest.json", "500 pieces", "499"});
  options.vocab_size = 500;
  test::write_shard(directory + "/other.bin", test::counting_tokens(100));
  options.patterns = {directory + "/other.bin"};
  expect_error([&] { SequenceSource source(options); }, {"other.bin", "not among the shards"});
  test::write_shard(shard.path() + "2", test::counting_tokens(99));
  std::filesystem::rename(shard.path() + "2", shard.path());
  options.patterns = {shard.path()};
  expect_error([&] { SequenceSource source(options); }, {"99 tokens", "lists 100"});
}

// Returns all tokens and targets of `rows` sequences from `first`, through batches of some size.
Tokens stream_through(const std::shared_ptr<const SequenceSource>& source,
                      const DataLoader::Options& options, int64_t batches) {
  DataLoader loader(source, options);
  Tokens all;
  for (int64_t i = 0; i < batches; ++i) {
    EXPECT_EQ(loader.cursor(), options.first_sequence + i * options.rows_per_batch);
    const Batch batch = loader.next();
    EXPECT_EQ(batch.first_sequence, options.first_sequence + i * options.rows_per_batch);
    EXPECT_EQ(batch.rows, options.rows_per_batch);
    EXPECT_EQ(batch.seq_len, source->seq_len());
    EXPECT_EQ(batch.valid_targets, batch.rows * batch.seq_len);
    all.insert(all.end(), batch.tokens.begin(), batch.tokens.end());
  }
  return all;
}

TEST(DataLoader, TokensDoNotDependOnBatchSizeOrPrefetch) {
  const auto source = counting_source();
  const Tokens expected = stream_through(source, {.rows_per_batch = 1, .prefetch_batches = 0}, 240);
  for (const int64_t rows : {1, 2, 3, 8, 61, 120})
    for (const int64_t prefetch : {0, 1, 2, 5}) {
      const Tokens tokens = stream_through(
          source, {.rows_per_batch = rows, .prefetch_batches = prefetch}, 240 / rows);
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()))
          << rows << " rows, " << prefetch;
      EXPECT_GE(tokens.size() + size_t(rows) * 10, expected.size());
    }
}

TEST(DataLoader, ResumeAtEveryCursorGivesTheSameTokens) {
  const auto source = counting_source();
  const Tokens expected = stream_through(source, {.rows_per_batch = 1, .prefetch_batches = 0}, 130);
  DataLoader moving(source, {.rows_per_batch = 2, .prefetch_batches = 3});
  for (int64_t cursor = 0; cursor <= 126;
       ++cursor) {  // over unequal shards and two epoch boundaries
    const Tokens want(expected.begin() + cursor * 10, expected.begin() + (cursor + 4) * 10);
    EXPECT_EQ(stream_through(source, {.rows_per_batch = 2, .first_sequence = cursor}, 2), want);
    moving.seek(cursor);
    EXPECT_EQ(moving.cursor(), cursor);
    EXPECT_EQ(moving.next().tokens, Tokens(want.begin(), want.begin() + 20));
  }
}

TEST(DataLoader, RunOfOneSequenceRepeatsIt) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(11));
  const auto source = std::make_shared<SequenceSource>(counting_options(path));
  DataLoader loader(source, {.rows_per_batch = 3});
  for (int i = 0; i < 4; ++i) {
    const Batch batch = loader.next();
    for (size_t row = 0; row < 3; ++row)
      EXPECT_EQ(Tokens(batch.tokens.begin() + int64_t(row) * 10,
                       batch.tokens.begin() + int64_t(row) * 10 + 10),
                test::counting_tokens(10));
  }
}

TEST(DataLoader, ErrorsOfTheThreadComeFromNextAndStayThere) {
  SequenceOptions options = counting_options(write_counting_shards(fresh_directory()));
  options.vocab_size = 520;
  options.shuffle = Shuffle::kNo;
  const auto source = std::make_shared<SequenceSource>(options);
  for (const int64_t prefetch : {0, 1, 4}) {
    DataLoader loader(source, {.rows_per_batch = 10, .prefetch_batches = prefetch});
    for (int i = 0; i < 5; ++i) EXPECT_NO_THROW(loader.next());
    for (int i = 0; i < 3; ++i) expect_error([&] { loader.next(); }, {"part_3.bin", "token 520"});
    EXPECT_EQ(loader.cursor(), 50);
    loader.seek(40);
    EXPECT_EQ(loader.next().tokens[0], 400);
    expect_error([&] { loader.next(); }, {"token 520"});
  }
}

TEST(DataLoader, APeekTakesNothing) {
  const std::string path =
      test::write_shard(test::fresh_directory() + "/s.bin", test::counting_tokens(400, 0, 100));
  const auto source = std::make_shared<SequenceSource>(
      SequenceOptions{.patterns = {path}, .seq_len = 8, .vocab_size = 100});
  for (const int64_t prefetch : {0, 2}) {
    DataLoader loader(source, {.rows_per_batch = 3, .prefetch_batches = prefetch});
    for (int64_t batch = 0; batch < 3; ++batch) {
      const uint64_t hash = loader.peek().hash;
      EXPECT_EQ(loader.peek().hash, hash);
      EXPECT_EQ(loader.cursor(), 3 * batch);
      EXPECT_EQ(loader.next().hash, hash);
    }
    loader.peek();
    loader.seek(0);
    EXPECT_EQ(loader.peek().first_sequence, 0);
  }
}

TEST(DataLoader, MayBeDroppedAtAnyTime) {
  const auto source = counting_source();
  for (int taken = 0; taken < 20; ++taken) {
    DataLoader loader(source, {.rows_per_batch = 1 + taken % 3, .prefetch_batches = taken % 4});
    for (int i = 0; i < taken % 5; ++i) loader.next();
    if (taken % 2 == 0) loader.seek(taken);
  }
}

TEST(DataLoader, ShardsMayBeDeletedWhileTheyAreRead) {
  const std::string directory = fresh_directory();
  const auto source =
      std::make_shared<SequenceSource>(counting_options(write_counting_shards(directory)));
  const Tokens before = read_batch(*source, 0, 61).tokens;
  std::filesystem::remove_all(directory);
  EXPECT_EQ(read_batch(*source, 0, 61).tokens, before);
}

TEST(DataLoader, NonsenseIsABug) {
  const auto source = counting_source();
  EXPECT_THROW(DataLoader(source, {.rows_per_batch = 0}), LogicError);
  EXPECT_THROW(DataLoader(source, {.prefetch_batches = -1}), LogicError);
  EXPECT_THROW(DataLoader(source, {.first_sequence = -1}), LogicError);
  DataLoader loader(source, {});
  EXPECT_THROW(loader.seek(-1), LogicError);
  Tokens tokens(10), targets(9);
  EXPECT_THROW(source->read(0, {tokens, targets}), LogicError);
}

}  // namespace
}  // namespace mpt
