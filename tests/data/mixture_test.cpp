// The order of rows in a mixture: its shares over any 1,000 rows, each corpus in its own order, and
// the part that a resumed run keeps.
#include "data/mixture.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "data/data_files.h"
#include "data/dataloader.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::expect_error;
using Tokens = std::vector<int32_t>;

MixtureOrder order_of(const CycleShares& shares) { return MixtureOrder({{0, shares}}); }

// Returns shares of 1 to 12 corpora, many of them small.
std::vector<CycleShares> many_shares() {
  std::vector<CycleShares> all{{{"a", 1000}}, {{"a", 999}, {"b", 1}}, {{"a", 500}, {"b", 500}}};
  test::Draws draws(5);
  for (int i = 0; i < 60; ++i) {
    std::map<std::string, double> weights;
    const int64_t corpora = 1 + draws.index(12);
    for (int64_t c = 0; c < corpora; ++c)
      weights[std::string(1, char('a' + c))] =
          std::pow(10.0, -double(draws.index(1000)) / 500) + 0.02;
    all.push_back(shares_of(weights));
  }
  return all;
}

TEST(Shares, AreTheNearestWholeRows) {
  EXPECT_EQ(shares_of({{"a", 1}}), (CycleShares{{"a", 1000}}));
  EXPECT_EQ(shares_of({{"a", 3}, {"b", 1}}), (CycleShares{{"a", 750}, {"b", 250}}));
  EXPECT_EQ(shares_of({{"a", 1}, {"b", 1}, {"c", 1}}),
            (CycleShares{{"a", 334}, {"b", 333}, {"c", 333}}));
  EXPECT_EQ(shares_of({{"a", 0.001}, {"b", 0.998}, {"c", 0.001}, {"d", 0}}),
            (CycleShares{{"a", 1}, {"b", 998}, {"c", 1}, {"d", 0}}));
}

TEST(Shares, OfWeightsThatCannotBeMetAreErrors) {
  expect_error([] { shares_of({{"web", -1}, {"books", 2}}); }, {"web", "-1", "from 0"});
  expect_error([] { shares_of({{"web", 0}, {"books", 0}}); }, {"add up to 0"});
  expect_error([] { shares_of({{"web", INFINITY}}); }, {"web", "inf"});
  expect_error(
      [] {
        shares_of({{"web", 1}, {"books", 0.0005}});
      },
      {"books", "less than one row in 1000"});
}

TEST(Shares, AddUpToACycleAndAreOffByLessThanARow) {
  test::Draws draws(9);
  for (int i = 0; i < 200; ++i) {
    std::map<std::string, double> weights;
    for (int64_t c = 0, n = 1 + draws.index(30); c < n; ++c)
      weights[std::to_string(c)] = 1 + double(draws.index(30));
    double sum = 0;
    for (const auto& [name, weight] : weights) sum += weight;
    int64_t rows = 0;
    for (const auto& [name, share] : shares_of(weights)) {
      rows += share;
      EXPECT_LT(std::abs(double(share) - weights.at(name) / sum * kRowsPerCycle), 1);
    }
    EXPECT_EQ(rows, kRowsPerCycle);
  }
}

// A little more than two cycles: the rows of each corpus come in order, and never deviate from
// their share by a row. So any window of 1,000 rows holds exactly the shares.
TEST(MixtureOrder, KeepsEveryCorpusWithinARowOfItsShare) {
  for (const CycleShares& shares : many_shares()) {
    const MixtureOrder order = order_of(shares);
    std::map<std::string, std::vector<int64_t>> rows_after;  // of a corpus, after each global row
    std::map<std::string, int64_t> next;
    for (int64_t row = 0; row < 2 * kRowsPerCycle + 77; ++row) {
      const auto [corpus, index] = order.place(row);
      ASSERT_EQ(index, next[corpus]++) << "row " << row << " of " << corpus;
      for (const auto& [name, share] : shares) {
        rows_after[name].push_back(next[name]);
        ASSERT_LT(std::abs(kRowsPerCycle * next[name] - (row + 1) * share), kRowsPerCycle)
            << name << " after row " << row;
        ASSERT_EQ(order.rows_of(name, row + 1), next[name]);
        if (row < kRowsPerCycle) continue;
        ASSERT_EQ(next[name] - rows_after[name][size_t(row - kRowsPerCycle)], share);
      }
    }
  }
}

TEST(MixtureOrder, GoesOnWithEachCorpusWhereASegmentEnds) {
  const MixtureOrder order(
      {{0, {{"a", 500}, {"b", 500}}}, {333, {{"b", 900}, {"c", 100}}}, {1733, {{"a", 1000}}}});
  std::map<std::string, int64_t> next;
  for (int64_t row = 0; row < 5000; ++row) {
    const auto [corpus, index] = order.place(row);
    ASSERT_EQ(index, next[corpus]++) << row;
    ASSERT_EQ(order.rows_of(corpus, row + 1), next[corpus]) << row;
  }
  EXPECT_EQ(next["c"], 140);
  EXPECT_EQ(next["a"] + next["b"] + next["c"], 5000);
  EXPECT_EQ(order.rows_of("a", 0), 0);
  EXPECT_EQ(order.rows_of("d", 5000), 0);
}

TEST(MixtureOrder, ThatIsContinuedKeepsWhatWasRead) {
  const CycleShares even{{"a", 500}, {"b", 500}}, mostly_a{{"a", 900}, {"b", 100}},
      third{{"a", 300}, {"b", 300}, {"c", 400}};
  const MixtureOrder former({{0, even}, {2000, mostly_a}});
  EXPECT_EQ(former.continuing(former, 700), former);
  EXPECT_EQ(former.continuing(former, 2700), former);
  EXPECT_EQ(order_of(third).continuing(former, 0), order_of(third));
  EXPECT_EQ(order_of(third).continuing(former, 700), MixtureOrder({{0, even}, {700, third}}));
  EXPECT_EQ(order_of(third).continuing(former, 2700),
            MixtureOrder({{0, even}, {2000, mostly_a}, {2700, third}}));
  EXPECT_EQ(former.continuing(former, 2000), former);
  // A phase with the same shares as the previous one begins its own cycle, even if resumed there.
  const MixtureOrder alike({{0, even}, {2000, even}});
  EXPECT_EQ(alike.continuing(alike, 2000), alike);
  // The end of a phase moved: no new cycle begins at row 700.
  EXPECT_EQ(MixtureOrder({{0, even}, {3000, mostly_a}}).continuing(former, 700),
            MixtureOrder({{0, even}, {3000, mostly_a}}));
  const MixtureOrder later = order_of(third).continuing(former, 1999);
  for (int64_t row = 0; row < 1999; ++row) {
    EXPECT_EQ(later.place(row).corpus, former.place(row).corpus);
    EXPECT_EQ(later.place(row).row, former.place(row).row);
  }
  EXPECT_EQ(later.rows_of("a", 1999) + later.rows_of("b", 1999), 1999);
}

TEST(MixtureOrder, IsTheSameAfterJson) {
  const MixtureOrder order({{0, {{"a", 500}, {"b", 500}}}, {333, {{"c", 1000}}}});
  EXPECT_EQ(MixtureOrder::parse(order.json(), "x"), order);
  EXPECT_EQ(order.json().dump(), R"([{"first_row":0,"rows_of_1000":{"a":500,"b":500}},)"
                                 R"({"first_row":333,"rows_of_1000":{"c":1000}}])");
  for (const char* text :
       {"null", "[]", "3", "{}", R"("a")", "[1]", R"([{"first_row":0}])",
        R"([{"first_row":1,"rows_of_1000":{"a":1000}}])",
        R"([{"first_row":0,"rows_of_1000":{"a":999}}])",
        R"([{"first_row":0,"rows_of_1000":{"a":1001,"b":-1}}])",
        R"([{"first_row":0,"rows_of_1000":{"a":1e30}}])",
        R"([{"first_row":0,"rows_of_1000":[1000]}])",
        R"([{"first_row":0,"rows_of_1000":{"a":1000}},{"first_row":0,"rows_of_1000":{"a":1000}}])"})
    expect_error([&] { MixtureOrder::parse(nlohmann::json::parse(text), "state.json"); },
                 {"state.json", "is not an order of rows"});
}

std::shared_ptr<const SequenceSource> corpus_from(int32_t first, int64_t tokens) {
  const std::string path = test::fresh_directory() + "/part_0.bin";
  test::write_shard(path, test::counting_tokens(tokens, first));
  return std::make_shared<SequenceSource>(
      SequenceOptions{.patterns = {path}, .seq_len = 10, .seed = 3, .vocab_size = 60000});
}

// Every row of a mixture is the row of its corpus, including epochs, regardless of who reads it.
TEST(Mixture, HasTheRowsOfItsCorpora) {
  const auto small = corpus_from(0, 101), large = corpus_from(20000, 20001);
  const auto mixture =
      std::make_shared<const Mixture>(std::vector<Corpus>{{"small", small}, {"large", large}},
                                      order_of(shares_of({{"small", 1}, {"large", 3}})));
  EXPECT_EQ(mixture->tokens(), 101 + 20001);
  EXPECT_DOUBLE_EQ(mixture->epochs(mixture->corpora()[0], 4000), 100.0);
  EXPECT_DOUBLE_EQ(mixture->epochs(mixture->corpora()[1], 4000), 1.5);
  Tokens tokens(10), targets(10), of_corpus(10), targets_of_corpus(10);
  for (int64_t row = 0; row < 3000; ++row) {
    const auto [name, index] = mixture->order().place(row);
    mixture->read(row, {tokens, targets});
    (name == "small" ? small : large)->read(index, {of_corpus, targets_of_corpus});
    ASSERT_EQ(tokens, of_corpus);
    ASSERT_EQ(targets, targets_of_corpus);
    ASSERT_EQ(mixture->valid_targets(row), 10);
  }
  DataLoader whole(mixture, {.rows_per_batch = 12}),
      part(mixture, {.rows_per_batch = 12, .slice = RowSlice{5, 4}});
  for (int i = 0; i < 100; ++i) {
    const Batch all = whole.next(), some = part.next();
    EXPECT_TRUE(std::equal(some.tokens.begin(), some.tokens.end(), all.tokens.begin() + 50));
  }
}

// `data.train` without names: its rows are unchanged.
TEST(Mixture, OfOneCorpusIsThatCorpus) {
  const auto source = corpus_from(0, 611);
  const Mixture mixture({{"", source}}, order_of(shares_of({{"", 1}})));
  Tokens a(10), b(10), targets_a(10), targets_b(10);
  for (int64_t row = 0; row < 2500; ++row) {
    mixture.read(row, {a, targets_a});
    source->read(row, {b, targets_b});
    ASSERT_EQ(a, b);
    ASSERT_EQ(targets_a, targets_b);
  }
}

TEST(DataLoader, GoesOnWithOtherRows) {
  const auto one = corpus_from(0, 1001), other = corpus_from(5000, 1001);
  DataLoader loader(one, {.rows_per_batch = 4});
  const Batch first = loader.next();
  loader.seek(other, 8);
  EXPECT_EQ(loader.cursor(), 8);
  const Batch next = loader.next();
  EXPECT_EQ(next.tokens, read_batch(*other, 8, 4).tokens);
  EXPECT_NE(next.tokens, read_batch(*one, 8, 4).tokens);
  EXPECT_EQ(first.tokens, read_batch(*one, 0, 4).tokens);
}

}  // namespace
}  // namespace mpt
