// Rows that know their documents, and best-fit packing: the contents of each row, that nothing is
// lost or repeated, and that the plan depends only on the indices.
#include <map>
#include <set>

#include "data/data_files.h"
#include "data/dataloader.h"
#include "data/sequence_source.h"
#include "data/shuffle.h"
#include "support/captured_log.h"

namespace mpt {
namespace {

using test::expect_error;
using test::fresh_directory;
using Tokens = std::vector<int32_t>;

// Shards of `of_shard` tokens that count up from 0, so that a token is its position in the stream;
// documents of these lengths follow `head` tokens outside any document.
struct Corpus {
  std::string pattern;
  std::set<int64_t> begins;
  int64_t tokens = 0;

  explicit Corpus(const std::vector<int64_t>& lengths, int64_t head = 0, int64_t of_shard = 40)
      : tokens(head) {
    for (const int64_t length : lengths) {
      begins.insert(tokens);
      tokens += length;
    }
    const std::string directory = fresh_directory();
    for (int64_t first = 0, shard = 0; first < tokens; first += of_shard, ++shard) {
      const int64_t count = std::min(of_shard, tokens - first);
      const std::string path =
          test::write_shard(fmt::format("{}/docs_{:03}.bin", directory, shard),
                            test::counting_tokens(count, static_cast<int32_t>(first)));
      std::vector<uint64_t> inside;
      for (const int64_t begin : begins)
        if (begin >= first && begin < first + count)
          inside.push_back(static_cast<uint64_t>(begin - first));
      write_document_index(index_path_of(path), inside, count);
    }
    pattern = directory + "/docs_*.bin";
  }

  [[nodiscard]] SequenceOptions options(int64_t seq_len) const {
    return {.patterns = {pattern},
            .seq_len = seq_len,
            .shuffle = Shuffle::kNo,
            .seed = 5,
            .vocab_size = 60000,
            .pad_token = 59999};
  }
  // Returns the beginning of the document that contains a token.
  [[nodiscard]] int64_t begin_of(int64_t token) const {
    const auto after = begins.upper_bound(token);
    return after == begins.begin() ? 0 : *std::prev(after);
  }
};

Corpus many_documents(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 400; ++i)
    lengths.push_back(random() % 3 == 0 ? 1 + random() % 70 : 1 + random() % 9);
  return Corpus(lengths, 7, 900);
}

struct PackedRow {
  Tokens tokens, targets, begins;
};

PackedRow packed_row(const SequenceSource& source, int64_t sequence) {
  const auto length = static_cast<size_t>(source.seq_len());
  const bool apart = source.attention() == AttentionScope::kDocument;
  PackedRow row{Tokens(length), Tokens(length), Tokens(apart ? length : 0)};
  source.read(sequence, {row.tokens, row.targets, row.begins});
  return row;
}

TEST(DocumentRows, BeginWhereTheirDocumentsDo) {
  // Documents at 3 (after tokens outside any), 5, 6 and 14, the last across two shards.
  const Corpus corpus({2, 1, 8, 30}, 3);
  SequenceOptions options = corpus.options(8);
  options.attention = AttentionScope::kDocument;
  const SequenceSource source(options);
  ASSERT_EQ(source.sequences(), 5);
  const PackedRow first = packed_row(source, 0), second = packed_row(source, 1),
                  last = packed_row(source, 4);
  EXPECT_EQ(first.tokens, (Tokens{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(first.begins, (Tokens{0, 0, 0, 3, 3, 5, 6, 6}));
  EXPECT_EQ(first.targets, (Tokens{1, 2, -1, 4, -1, -1, 7, 8}));
  EXPECT_EQ(second.tokens, (Tokens{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(second.begins, (Tokens{0, 0, 0, 0, 0, 0, 6, 6}));
  EXPECT_EQ(second.targets, (Tokens{9, 10, 11, 12, 13, -1, 15, 16}));
  EXPECT_EQ(last.begins, Tokens(8, 0));
  EXPECT_EQ(last.targets, test::counting_tokens(8, 33));
}

// The target after a row's last token may be the first of a document.
TEST(DocumentRows, HaveNoTargetBeyondADocumentThatEndsWithTheRow) {
  SequenceOptions options = Corpus({8, 8, 1}).options(8);
  options.attention = AttentionScope::kDocument;
  const SequenceSource source(options);
  EXPECT_EQ(packed_row(source, 0).targets, (Tokens{1, 2, 3, 4, 5, 6, 7, -1}));
  EXPECT_EQ(packed_row(source, 1).targets, (Tokens{9, 10, 11, 12, 13, 14, 15, -1}));
  EXPECT_EQ(packed_row(source, 1).begins, Tokens(8, 0));
}

// Expects every token, every target and every beginning of rows of any kind, and their count.
void expect_rows_of(const Corpus& corpus, const SequenceSource& source) {
  const bool apart = source.attention() == AttentionScope::kDocument;
  for (int64_t s = 0; s < source.sequences(); ++s) {
    const PackedRow row = packed_row(source, s);
    int64_t targets = 0, begin = 0;
    for (size_t t = 0; t < row.tokens.size(); ++t) {
      const int32_t token = row.tokens[t], target = row.targets[t];
      const bool padding = token == 59999;
      const bool follows = t > 0 && token == row.tokens[t - 1] + 1 &&
                           corpus.begin_of(token) == corpus.begin_of(row.tokens[t - 1]);
      const bool pads_on = t > 0 && padding && row.tokens[t - 1] == 59999;
      if (t > 0 && !follows && !pads_on) begin = int64_t(t);
      ASSERT_EQ(apart ? row.begins[t] : begin, begin) << "row " << s << ", " << t;
      targets += target != kIgnoreTarget ? 1 : 0;
      if (target == kIgnoreTarget) continue;
      ASSERT_FALSE(padding);
      ASSERT_EQ(target, t + 1 < row.tokens.size() ? row.tokens[t + 1] : target);
      if (!apart) continue;
      ASSERT_EQ(target, token + 1);
      ASSERT_EQ(corpus.begin_of(target), corpus.begin_of(token));
    }
    ASSERT_EQ(source.valid_targets(s), targets) << "row " << s;
  }
}

TEST(DocumentRows, OfManyDocumentsAreRight) {
  const Corpus corpus = many_documents(1);
  for (const int64_t seq_len : {1, 2, 7, 32, 100}) {
    SequenceOptions options = corpus.options(seq_len);
    options.attention = AttentionScope::kDocument;
    expect_rows_of(corpus, SequenceSource(options));
  }
}

// Counts how often each token of the stream is an input or a target.
struct Uses {
  std::map<int64_t, int> inputs, targets;
  explicit Uses(const SequenceSource& source) {
    for (int64_t s = 0; s < source.sequences(); ++s) {
      const PackedRow row = packed_row(source, s);
      for (size_t t = 0; t < row.tokens.size(); ++t) {
        if (row.tokens[t] != 59999) ++inputs[row.tokens[t]];
        if (row.targets[t] != kIgnoreTarget) ++targets[row.targets[t]];
      }
    }
  }
};

TEST(BestFit, UsesEveryTokenOnce) {
  const Corpus corpus = many_documents(2);
  for (const int64_t seq_len : {1, 2, 8, 24, 69, 70, 300}) {
    SequenceOptions options = corpus.options(seq_len);
    options.packing = Packing::kBestFit;
    options.attention = AttentionScope::kDocument;
    const SequenceSource source(options);
    expect_rows_of(corpus, source);
    const Uses uses(source);
    for (int64_t token = 0; token < corpus.tokens; ++token) {
      const auto count = [&](const std::map<int64_t, int>& of) {
        return of.contains(token) ? of.at(token) : 0;
      };
      const bool first = corpus.begin_of(token) == token;
      ASSERT_EQ(count(uses.targets), first ? 0 : 1) << token << " of rows of " << seq_len;
      ASSERT_LE(count(uses.inputs), 1) << token;
      // Only the last token of a full row or of a document is no input.
      const bool last = token + 1 == corpus.tokens || corpus.begins.contains(token + 1);
      ASSERT_TRUE(last || count(uses.inputs) == 1) << token;
    }
  }
}

// With attention over rows: the same plan, and targets across documents too.
TEST(BestFit, DoesNotDependOnAttention) {
  const Corpus corpus = many_documents(3);
  SequenceOptions options = corpus.options(30);
  options.packing = Packing::kBestFit;
  const SequenceSource rows(options);
  options.attention = AttentionScope::kDocument;
  const SequenceSource documents(options);
  ASSERT_EQ(rows.sequences(), documents.sequences());
  expect_rows_of(corpus, rows);
  for (int64_t s = 0; s < rows.sequences(); ++s)
    EXPECT_EQ(packed_row(rows, s).tokens, packed_row(documents, s).tokens);
}

TEST(BestFit, TakesTheRowWithTheLeastRoom) {
  // Rows of 9 tokens: 5 and 6 open two rows with room for 4 and 3; 3 goes to the second, 4 to the
  // first; 20 is split into 9, 9 (each sharing a token with the next) and 4; 5 joins the 4.
  SequenceOptions options = Corpus({5, 6, 3, 4, 20, 5}).options(8);
  options.packing = Packing::kBestFit;
  const SequenceSource source(options);
  ASSERT_EQ(source.sequences(), 5);
  EXPECT_EQ(packed_row(source, 0).tokens, (Tokens{0, 1, 2, 3, 4, 14, 15, 16}));
  EXPECT_EQ(packed_row(source, 0).targets, (Tokens{1, 2, 3, 4, 14, 15, 16, 17}));
  EXPECT_EQ(packed_row(source, 1).tokens, (Tokens{5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(packed_row(source, 2).tokens, test::counting_tokens(8, 18));
  EXPECT_EQ(packed_row(source, 3).tokens, test::counting_tokens(8, 26));
  EXPECT_EQ(packed_row(source, 4).tokens, (Tokens{34, 35, 36, 37, 38, 39, 40, 41}));
}

TEST(BestFit, CountsRowsCutsAndPadding) {
  const test::CapturedLog log(spdlog::level::info);
  SequenceOptions options = Corpus({5, 6, 20}, 2).options(8);  // 2 | 5, 6, 9, 9, 4
  options.packing = Packing::kBestFit;
  const SequenceSource source(options);
  // 2 and 5; 6; 9; 9; 4: room for 2, 3 and 5 of 5 rows of 9.
  EXPECT_EQ(source.sequences(), 5);
  EXPECT_TRUE(
      log.has("best-fit packing: 4 documents in 5 rows of 9 tokens, 1 of them cut; 10 places "
              "(22.22 %) are padding"))
      << log.text();
}

TEST(OneDocument, SaysWhatTheRowsLeaveOut) {
  const test::CapturedLog log(spdlog::level::info);
  SequenceOptions options = Corpus({5, 6, 20}, 2).options(8);
  options.pack = false;
  const SequenceSource source(options);
  EXPECT_TRUE(log.has("one document per row: 3 rows of 9 tokens leave out 13 of 33 tokens (39 %)"))
      << log.text();
}

TEST(BestFit, OrderIsThatOfTheShuffleAndOfNothingElse) {
  const Corpus corpus = many_documents(4);
  SequenceOptions options = corpus.options(16);
  options.packing = Packing::kBestFit;
  options.attention = AttentionScope::kDocument;
  const SequenceSource plain(options);
  options.shuffle = Shuffle::kYes;
  const auto shuffled = std::make_shared<const SequenceSource>(options);
  const int64_t n = plain.sequences();
  for (int64_t s = 0; s < 2 * n; ++s)
    EXPECT_EQ(packed_row(*shuffled, s).tokens,
              packed_row(plain, permuted_index({options.seed, s / n}, n, s % n)).tokens);
  // Slices of ranks: the rows, the hash and the targets of the whole.
  const Batch whole = read_batch(*shuffled, 3, 6);
  uint64_t hash = 0;
  Tokens begins;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DataLoader loader(shuffled,
                      {.rows_per_batch = 6, .first_sequence = 3, .slice = slice_of(6, rank, 4)});
    const Batch part = loader.next();
    EXPECT_EQ(part.valid_targets, whole.valid_targets);
    hash += part.hash;
    begins.insert(begins.end(), part.document_begin.begin(), part.document_begin.end());
  }
  EXPECT_EQ(begins, whole.document_begin);
  EXPECT_EQ(hash, whole.hash);
}

// A naive search over every open row, with more documents than rows may be open.
TEST(BestFit, ClosesTheFullestOfTooManyRows) {
  constexpr int64_t kCapacity = 4001;
  std::mt19937 random(8);
  std::vector<int64_t> lengths;
  // None of the first 1,500 shares a row with another.
  for (int i = 0; i < 1500; ++i) lengths.push_back(2100 + random() % 1000);
  for (int i = 0; i < 1500; ++i) lengths.push_back(1 + random() % 2000);
  struct Open {
    int64_t room, row;
  };
  std::vector<Open> open;
  std::vector<std::vector<size_t>> rows;
  for (size_t i = 0; i < lengths.size(); ++i) {
    auto best = open.end();
    for (auto it = open.begin(); it != open.end(); ++it)
      if (it->room >= lengths[i] && (best == open.end() || it->room < best->room)) best = it;
    if (best == open.end()) {
      open.push_back({kCapacity, std::ssize(rows)});
      rows.emplace_back();
      best = open.end() - 1;
    }
    rows[size_t(best->row)].push_back(i);
    best->room -= lengths[i];
    if (std::ssize(open) > BestFitPlan::kOpenRows)
      open.erase(std::min_element(open.begin(), open.end(),
                                  [](const Open& a, const Open& b) { return a.room < b.room; }));
  }
  std::vector<uint64_t> starts;
  int64_t tokens = 0;
  for (const int64_t length : lengths) {
    starts.push_back(uint64_t(tokens));
    tokens += length;
  }
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(tokens));
  write_document_index(index_path_of(path), starts, tokens);
  TokenStream stream({path}, 60000);
  stream.open_documents("the test");
  const BestFitPlan plan(stream, kCapacity - 1);
  ASSERT_EQ(plan.rows(), std::ssize(rows));
  EXPECT_EQ(plan.documents(), 3000);
  EXPECT_EQ(plan.cut_documents(), 0);
  EXPECT_EQ(plan.padding(), plan.rows() * kCapacity - tokens);
  for (int64_t row = 0; row < plan.rows(); ++row) {
    const auto pieces = plan.pieces_of(row);
    EXPECT_EQ(std::vector<size_t>(pieces.begin(), pieces.end()), rows[size_t(row)]) << row;
  }
}

TEST(BestFit, TakesAStreamOfOneDocumentThatBeganBefore) {
  SequenceOptions options = Corpus({}, 20).options(8);
  options.packing = Packing::kBestFit;
  const SequenceSource source(options);
  ASSERT_EQ(source.sequences(), 3);
  EXPECT_EQ(packed_row(source, 2).tokens, (Tokens{16, 17, 18, 19, 59999, 59999, 59999, 59999}));
  EXPECT_EQ(source.valid_targets(2), 3);
}

TEST(DocumentRows, NeedTheIndex) {
  const std::string path =
      test::write_shard(fresh_directory() + "/s.bin", test::counting_tokens(20));
  SequenceOptions options{
      .patterns = {path}, .seq_len = 8, .attention = AttentionScope::kDocument, .vocab_size = 100};
  expect_error([&] { SequenceSource source(options); },
               {"s.idx: no such document index", "attention: document", "mpretrain tokenize"});
  options.attention = AttentionScope::kRow;
  options.packing = Packing::kBestFit;
  expect_error([&] { SequenceSource source(options); },
               {"s.idx: no such document index", "packing: best_fit"});
}

}  // namespace
}  // namespace mpt
