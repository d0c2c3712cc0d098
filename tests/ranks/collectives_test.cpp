// The same calls on every transport that runs here, with bit-identical results.
#include <array>
#include <map>
#include <sstream>
#include <tuple>

#include <gtest/gtest.h>

#include "core/io/hash.h"
#include "ranks/collective_cases.h"
#include "support/rank_calls.h"
#include "support/thread_ranks.h"

namespace mpt {
namespace {

// Returns hashes of each rank's result, in order.
std::string hashes_of_threads(int64_t ranks, test::Case run) {
  std::vector<std::string> hashes(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Transport& transport) {
    hashes[size_t(transport.rank())] = hash_bytes(run(transport));
  });
  std::string all;
  for (const std::string& hash : hashes) all += hash;
  return all;
}

class Threads : public testing::TestWithParam<int64_t> {};

TEST_P(Threads, DoWhatATransportPromises) {
  for (const auto& [name, run] : test::collective_cases()) {
    SCOPED_TRACE(name);
    EXPECT_NO_THROW(hashes_of_threads(GetParam(), run));
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, testing::Values(1, 2, 3, 4, 5));

TEST(Single, DoesWhatATransportPromises) {
  const auto single = make_single_transport();
  for (const auto& [name, run] : test::collective_cases()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(hash_bytes(run(*single)), hashes_of_threads(1, run));
  }
}

class Processes : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  // Returns the output of the ranks: a line for the name of the transport, then hashes by name of
  // the case.
  static std::pair<std::string, std::map<std::string, std::string>> run(
      const std::string& transport, int ranks, const std::string& piece_bytes) {
    const test::ProgramResult result =
        test::run_rank_calls(transport, ranks, {"cases", piece_bytes});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    std::istringstream lines(result.out);
    std::string first;
    std::getline(lines, first);
    std::map<std::string, std::string> hashes;
    for (std::string line; std::getline(lines, line);)
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        hashes[line.substr(0, colon)] = line.substr(colon + 2);
    return {first, hashes};
  }
};

TEST_P(Processes, GiveTheBitsOfThreads) {
  const auto& [transport, ranks] = GetParam();
  MPT_SKIP_WITHOUT_TRANSPORT(transport);
  const auto [name, hashes] = run(transport, ranks, "1073741824");
  EXPECT_TRUE(name.starts_with(transport == "mpi" ? "MPI (" : "Gloo")) << name;
  EXPECT_NE(name.find(fmt::format("{} ranks", ranks)), std::string::npos) << name;
  EXPECT_EQ(hashes.size(), test::collective_cases().size());
  for (const auto& [of_case, hash] : hashes)
    EXPECT_EQ(hash, hashes_of_threads(ranks, test::collective_cases().at(of_case))) << of_case;
}

// Simulates a part larger than the largest message.
TEST_P(Processes, SendLongPartsInPieces) {
  const auto& [transport, ranks] = GetParam();
  MPT_SKIP_WITHOUT_TRANSPORT(transport);
  EXPECT_EQ(run(transport, ranks, "1073741824"), run(transport, ranks, "1000"));
}
INSTANTIATE_TEST_SUITE_P(Ranks, Processes,
                         testing::Combine(testing::Values("mpi", "gloo"), testing::Values(2, 3, 4)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

// Otherwise the comparisons above would show nothing.
TEST(RankOrder, ChangesTheSumsThatAreCompared) {
  int64_t different = 0;
  for (int64_t i = 0; i < 300; ++i) {
    float backward = test::given_value(2, 0, i);
    for (const int64_t rank : {1, 0}) backward += test::given_value(rank, 0, i);
    if (!test::same_bits(backward, test::sum_in_order(DType::kF32, 3, 0, i))) ++different;
  }
  EXPECT_GT(different, 20);
}

TEST(Arguments, ThatNoTransportTakesAreLogicErrors) {
  const auto single = make_single_transport();
  std::array<float, 8> memory{};
  auto* const data = reinterpret_cast<std::byte*>(memory.data());
  const auto view = [&](DType type, int64_t n) { return Tensor{data, type, 1, n, n}; };
  const Tensor four = view(DType::kF32, 4), bytes = view(DType::kU8, 4),
               halves = view(DType::kBF16, 4);
  const std::array<Tensor, 2> two{four, four};
  EXPECT_THROW(single->reduce_scatter_sum(two, four), LogicError);
  EXPECT_THROW(single->all_gather(two), LogicError);
  EXPECT_THROW(single->reduce_scatter_sum({&bytes, 1}, four), LogicError);
  EXPECT_THROW(single->reduce_scatter_sum({&halves, 1}, halves), LogicError);
  EXPECT_THROW(single->reduce_scatter_sum({&four, 1}, view(DType::kF32, 3)), LogicError);
  EXPECT_THROW(single->all_reduce_max(halves), LogicError);
  const Tensor gaps{data, DType::kF32, 2, 2, 4};
  EXPECT_THROW(single->all_gather({&gaps, 1}), LogicError);
  EXPECT_THROW(single->gather_host({data, 4}, {data, 8}), LogicError);
  EXPECT_THROW(single->broadcast_host({data, 4}, 1), LogicError);
}

}  // namespace
}  // namespace mpt
