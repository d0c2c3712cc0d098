// Partitions over ranks: every update block exactly once, cuts at tile boundaries, balanced, and
// the same on every rank.
#include "ranks/partition.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "support/draws.h"

namespace mpt {
namespace {

using Tensors = std::vector<PartitionedTensor>;

int64_t blocks_of(const PartitionedTensor& t) { return BlockGrid{t.rows, t.cols}.blocks(); }

// Tensors of a LLaMA: an embedding, layers, a norm and a head, a bucket for each group.
Tensors llama(int64_t layers, int64_t width, Cut of_linears) {
  Tensors tensors{{.rows = 1000, .cols = width}};
  const int64_t wide = width * 8 / 3 + 1;
  for (int64_t layer = 1; layer <= layers; ++layer) {
    tensors.push_back({.rows = 1, .cols = width, .bucket = layer});
    for (int i = 0; i < 4; ++i)
      tensors.push_back({.rows = width, .cols = width, .bucket = layer, .cut = of_linears});
    for (const bool down : {false, false, true})
      tensors.push_back({.rows = down ? width : wide,
                         .cols = down ? wide : width,
                         .bucket = layer,
                         .cut = of_linears});
  }
  tensors.push_back({.rows = 1, .cols = width, .bucket = layers + 1});
  tensors.push_back({.rows = 1000, .cols = width, .bucket = layers + 1});
  return tensors;
}

std::vector<Tensors> many_models() {
  std::vector<Tensors> models{{},
                              {{.rows = 1, .cols = 1}},
                              {{.rows = 0, .cols = 8}, {.rows = 5, .cols = 3}},
                              {{.rows = 4097, .cols = 1}},
                              {{.rows = 1, .cols = 1 << 20}},
                              {{.rows = 7, .cols = 300, .cut = Cut::kNowhere}}};
  for (const Cut cut : {Cut::kBetweenTiles, Cut::kNowhere})
    for (const int64_t width : {64, 100, 288, 512}) models.push_back(llama(3, width, cut));
  test::Draws draws(71);
  for (int i = 0; i < 40; ++i) {
    Tensors tensors;
    int64_t bucket = 0;
    for (int64_t count = 1 + draws.index(9); count > 0; --count) {
      bucket += draws.index(2);
      tensors.push_back({.rows = draws.index(300),
                         .cols = 1 + draws.index(900),
                         .bucket = bucket,
                         .cut = draws.index(4) == 0 ? Cut::kNowhere : Cut::kBetweenTiles});
    }
    models.push_back(tensors);
  }
  return models;
}

constexpr int64_t kRanks[] = {1, 2, 3, 4, 7, 16, 100};

TEST(Partition, EveryUnitBelongsToOneRankInOrder) {
  for (const Tensors& tensors : many_models())
    for (const int64_t ranks : kRanks) {
      const Partition partition(tensors, ranks);
      ASSERT_EQ(partition.ranks(), ranks);
      ASSERT_EQ(partition.tensors(), std::ssize(tensors));
      for (int64_t i = 0; i < std::ssize(tensors); ++i) {
        const PartitionedTensor& t = tensors[size_t(i)];
        int64_t next = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const BlockRange range = partition.range(rank, i);
          if (range.empty()) continue;
          ASSERT_EQ(range.first, next);
          ASSERT_EQ(range.first % kBlocksPerTile, 0);
          if (t.cut == Cut::kNowhere) {
            ASSERT_EQ(range.count, blocks_of(t));
          }
          next = range.end();
        }
        ASSERT_EQ(next, blocks_of(t)) << t.rows << " " << t.cols << " over " << ranks;
      }
    }
}

// A rank's part of a bucket's tensors that may be cut is one run: no other rank's part lies within.
TEST(Partition, ARanksPartOfABucketIsOneRun) {
  for (const Tensors& tensors : many_models())
    for (const int64_t ranks : kRanks) {
      const Partition partition(tensors, ranks);
      std::map<int64_t, int64_t> last_rank;  // of each bucket so far
      for (int64_t i = 0; i < std::ssize(tensors); ++i) {
        if (tensors[size_t(i)].cut == Cut::kNowhere) continue;
        int64_t& last = last_rank[tensors[size_t(i)].bucket];
        for (int64_t rank = 0; rank < ranks; ++rank) {
          if (partition.range(rank, i).empty()) continue;
          ASSERT_GE(rank, last);
          last = rank;
        }
      }
    }
}

TEST(Partition, SharesAreEven) {
  for (const Tensors& tensors : many_models())
    for (const int64_t ranks : kRanks) {
      const Partition partition(tensors, ranks);
      int64_t total = 0, largest_uncut = 0, largest = 0, sum = 0;
      std::map<int64_t, int64_t> tile;  // the most elements in one, by bucket
      for (const PartitionedTensor& t : tensors) {
        total += t.rows * t.cols;
        if (t.cut == Cut::kNowhere)
          largest_uncut = std::max(largest_uncut, t.rows * t.cols);
        else
          tile[t.bucket] =
              std::max(tile[t.bucket], std::min<int64_t>(t.cols, kUpdateBlock) * kBlocksPerTile);
      }
      int64_t tiles = 0;
      for (const auto& [bucket, elements] : tile) tiles += elements;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        largest = std::max(largest, partition.elements(rank));
        sum += partition.elements(rank);
      }
      ASSERT_EQ(sum, total);
      ASSERT_LE(double(largest) - double(total) / double(ranks), double(tiles + largest_uncut))
          << ranks;
    }
}

// As even as tiles allow if all tensors are alike: 64 tiles over 4 ranks and over 5.
TEST(Partition, KnownCuts) {
  const Tensors one{{.rows = 64, .cols = 16 * 256}};
  const Partition four(one, 4), five(one, 5);
  for (int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(four.range(rank, 0), (BlockRange{rank * 256, 256})) << rank;
  // Ends closest to 12.8, 25.6, 38.4 and 51.2 tiles.
  const int64_t ends[] = {0, 13, 26, 38, 51, 64};
  for (size_t rank = 0; rank < 5; ++rank)
    EXPECT_EQ(five.range(int64_t(rank), 0),
              (BlockRange{16 * ends[rank], 16 * (ends[rank + 1] - ends[rank])}));
}

TEST(Partition, TensorsThatAreNotCutGoToTheRankWithLeast) {
  Tensors tensors{{.rows = 16, .cols = 256}};
  for (const int64_t rows : {10, 40, 30, 20}) tensors.push_back({rows, 256, 1, Cut::kNowhere});
  const Partition partition(tensors, 2);
  // One rank has the tile of 16 rows, so 40 go to the other, then 30, 20 and 10 in turn.
  const int64_t of_first = partition.range(0, 0).empty() ? 1 : 0, other = 1 - of_first;
  EXPECT_EQ(partition.range(of_first, 0).count, 16);
  EXPECT_EQ(partition.range(other, 2).count, 40);
  EXPECT_EQ(partition.range(of_first, 3).count, 30);
  EXPECT_EQ(partition.range(other, 4).count, 20);
  EXPECT_EQ(partition.range(of_first, 1).count, 10);
}

TEST(Partition, TheSameEveryTime) {
  for (const Tensors& tensors : many_models()) {
    const Partition a(tensors, 7), b(tensors, 7);
    for (int64_t rank = 0; rank < 7; ++rank)
      for (int64_t i = 0; i < std::ssize(tensors); ++i)
        ASSERT_EQ(a.range(rank, i), b.range(rank, i));
  }
}

// Hundreds of billions of elements over a thousand ranks: no multiplication overflows.
TEST(Partition, HugeModels) {
  const Partition partition(
      {{.rows = 1 << 20, .cols = 1 << 20}, {.rows = 1 << 19, .cols = 1 << 20, .bucket = 1}}, 1024);
  for (int64_t rank = 0; rank < 1024; ++rank)
    ASSERT_EQ(partition.elements(rank), (int64_t{3} << 39) / 1024);
}

TEST(Partition, RefusesNoRanksAndBucketsOutOfOrder) {
  EXPECT_THROW(Partition({}, 0), LogicError);
  EXPECT_THROW(Partition({{.rows = 1, .cols = 1, .bucket = 1}, {.rows = 1, .cols = 1}}, 2),
               LogicError);
}

}  // namespace
}  // namespace mpt
