// A rank that fails, hangs or leaves stops the others within a bounded time, and they report the
// cause.
#include <chrono>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "ranks/collective_cases.h"
#include "support/expect_error.h"
#include "support/faulty_transport.h"
#include "support/rank_calls.h"
#include "support/thread_ranks.h"

namespace mpt {
namespace {

using namespace std::chrono_literals;

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Records the errors of each rank's call of barrier(), if any.
class ThreadFailures : public testing::Test {
 protected:
  void barrier(Transport& ranks) {
    try {
      ranks.barrier();
    } catch (const std::exception& caught) {
      const std::lock_guard lock(mutex_);
      messages_[ranks.rank()] = caught.what();
      throw;
    }
  }
  std::mutex mutex_;
  std::map<int64_t, std::string> messages_;
};

TEST_F(ThreadFailures, ARankThatThrowsStopsTheOthersWithItsMessage) {
  const auto rank_main = [&](Transport& ranks) {
    barrier(ranks);
    if (ranks.rank() == 2) throw error("no memory for the gradients");
    barrier(ranks);
  };
  EXPECT_ERROR(run_ranks(4, rank_main, {.timeout = 1min}), "no memory for the gradients");
  EXPECT_EQ(messages_.size(), 3u);
  for (const auto& [rank, message] : messages_)
    EXPECT_EQ(message, "rank 2 failed: no memory for the gradients");
}

TEST_F(ThreadFailures, ALogicErrorStaysOne) {
  const auto rank_main = [&](Transport& ranks) {
    check(ranks.rank() != 1, "rank 1 is wrong");
    barrier(ranks);
  };
  EXPECT_THROW(run_ranks(2, rank_main), LogicError);
  EXPECT_EQ(messages_.at(0), "rank 1 failed: rank 1 is wrong");
}

TEST_F(ThreadFailures, ARankThatHangsIsNamedWhenTheTimeIsUp) {
  const auto rank_main = [&](Transport& ranks) {
    barrier(ranks);
    if (ranks.rank() % 2 == 1) std::this_thread::sleep_for(400ms);
    barrier(ranks);
  };
  EXPECT_ERROR(run_ranks(4, rank_main, {.timeout = 50ms}),
               "barrier: rank 1, 3 did not arrive within 0.05 s");
  EXPECT_EQ(messages_.size(), 4u);
}

TEST_F(ThreadFailures, ARankThatLeavesEarlyIsNamedAtOnce) {
  const auto rank_main = [&](Transport& ranks) {
    barrier(ranks);
    if (ranks.rank() != 1) barrier(ranks);
  };
  const double seconds = seconds_of([&] {
    EXPECT_ERROR(run_ranks(3, rank_main, {.timeout = 1min}), "barrier: rank 1 has left");
  });
  EXPECT_LT(seconds, 30);
}

TEST_F(ThreadFailures, DifferentCallsAreALogicErrorOnAllRanks) {
  const auto rank_main = [&](Transport& ranks) {
    if (ranks.rank() == 1) {
      std::array<std::byte, 4> mine{};
      std::array<std::byte, 8> all{};
      EXPECT_THROW(ranks.gather_host(mine, all), LogicError);
      return;
    }
    barrier(ranks);
  };
  EXPECT_THROW(run_ranks(2, rank_main), LogicError);
  EXPECT_EQ(messages_.at(0), "rank 1 calls gather_host of 4 bytes where rank 0 calls barrier");
}

TEST_F(ThreadFailures, DifferentSizesAreALogicError) {
  const auto rank_main = [&](Transport& ranks) {
    std::vector<float> values(size_t(3 + ranks.rank()));
    const auto n = int64_t(values.size());
    ranks.all_reduce_max({reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1, n, n});
  };
  try {
    run_ranks(2, rank_main);
    FAIL();
  } catch (const LogicError& caught) {
    EXPECT_STREQ(caught.what(),
                 "rank 1 calls all_reduce_max fp32[4] where rank 0 calls all_reduce_max fp32[3]");
  }
}

TEST_F(ThreadFailures, CallsAfterAFailureFailToo) {
  ThreadRanks ranks(2, {.timeout = 20ms});
  const auto first = ranks.transport(0), second = ranks.transport(1);
  EXPECT_ERROR(first->barrier(), "rank 1 did not arrive");
  EXPECT_ERROR(second->barrier(), "rank 1 did not arrive");
  second->abort("nothing goes");
  EXPECT_ERROR(first->barrier(), "rank 1 did not arrive");  // the first cause stays
}

TEST_F(ThreadFailures, ARankIsMadeOnce) {
  ThreadRanks ranks(2);
  const auto first = ranks.transport(0);
  EXPECT_THROW(static_cast<void>(ranks.transport(0)), LogicError);
  EXPECT_THROW(static_cast<void>(ranks.transport(2)), LogicError);
  EXPECT_THROW(ThreadRanks(0), LogicError);
}

// --- faults that tests of higher layers inject ---------------------------------------------------

TEST(FaultyTransport, ThrowsAtTheChosenCall) {
  const auto rank_main = [](Transport& ranks) {
    test::FaultyTransport faulty(ranks, {.rank = 1, .call = 3, .fault = test::CommFault::kThrow});
    for (int i = 0; i < 5; ++i) faulty.barrier();
  };
  EXPECT_ERROR(run_ranks(2, rank_main), "faulty transport", "call 3");
}

TEST(FaultyTransport, HangsUntilTheOthersGiveUp) {
  const auto rank_main = [](Transport& ranks) {
    test::FaultyTransport faulty(
        ranks, {.rank = 0, .call = 2, .fault = test::CommFault::kHang, .hang = 200ms});
    for (int i = 0; i < 3; ++i) faulty.barrier();
  };
  EXPECT_ERROR(run_ranks(2, rank_main, {.timeout = 50ms}), "rank 0 did not arrive");
}

TEST(FaultyTransport, CorruptsOneBitOfWhatItGathers) {
  const auto rank_main = [](Transport& ranks) {
    test::FaultyTransport faulty(ranks, {.rank = 1, .call = 2, .fault = test::CommFault::kCorrupt});
    faulty.barrier();
    EXPECT_NO_THROW(test::all_gather_case(ranks, DType::kU8, test::even_length));
    if (ranks.rank() == 1)
      EXPECT_THROW(test::all_gather_case(faulty, DType::kU8, test::even_length), LogicError);
    else
      EXPECT_NO_THROW(test::all_gather_case(faulty, DType::kU8, test::even_length));
  };
  EXPECT_NO_THROW(run_ranks(2, rank_main));
}

// --- processes -----------------------------------------------------------------------------------

struct Failure {
  const char *transport, *how;
  const char* message;  // on standard error
  int exit_code = 0;    // if it is known
};

class ProcessFailures : public testing::TestWithParam<Failure> {};

TEST_P(ProcessFailures, StopAllRanksInBoundedTime) {
  const Failure& failure = GetParam();
  MPT_SKIP_WITHOUT_TRANSPORT(failure.transport);
  test::ProgramResult result;
  const double seconds = seconds_of([&] {
    result = test::run_rank_calls(failure.transport, 3, {failure.how, "1"}, {.timeout_s = 40});
  });
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.exit_code, 0);
  if (failure.exit_code != 0) {
    EXPECT_EQ(result.exit_code, failure.exit_code);
  }
  EXPECT_LT(seconds, 20);  // the ranks' timeout is 1.5 s
  EXPECT_NE(result.err.find(failure.message), std::string::npos) << result.err;
}
INSTANTIATE_TEST_SUITE_P(
    How, ProcessFailures,
    testing::Values(Failure{"mpi", "throw", "rank 1: this rank gives up"},
                    Failure{"mpi", "exit", "exit code"}, Failure{"mpi", "kill", "signal 9"},
                    Failure{"mpi", "sleep", "barrier: rank 1 did not arrive within 1.5 s"},
                    Failure{"mpi", "abort", "barrier: cancelled because this rank is exiting"},
                    Failure{"mpi", "leave", "barrier: rank 1 is at the end of the run"},
                    Failure{"gloo", "throw", "rank 0: rank 1 failed: this rank gives up", 1},
                    Failure{"gloo", "exit", "barrier: rank 1 disconnected", 3},
                    Failure{"gloo", "kill", "was ended by signal 9 (Killed)", 128 + 9},
                    Failure{"gloo", "sleep", "barrier: rank 1 did not arrive within 1.5 s", 1},
                    Failure{"gloo", "abort", "barrier: cancelled because this rank is exiting", 1},
                    Failure{"gloo", "leave", "barrier: rank 1 is at the end of the run", 1}),
    [](const auto& failure) {
      return fmt::format("{}_{}", failure.param.transport, failure.param.how);
    });

TEST(LaunchScript, StartsRanksAndPassesTheirStatusOn) {
  MPT_SKIP_WITHOUT_MPIRUN();
  const auto launched = [](std::vector<std::string> args) {
    auto environment = test::ranks_environment();
    environment["MPRETRAIN"] = MPT_RANK_CALLS;
    args.insert(args.begin(), "2");
    return test::run_program(
        args, {.env = environment, .program = MPT_SOURCE_DIR "/scripts/launch/mpirun.sh"});
  };
  const test::ProgramResult good = launched({"mpi", "cases", "1000"}),
                            bad = launched({"mpi", "exit", "1"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_NE(good.out.find(", 2 ranks"), std::string::npos) << good.out;
  EXPECT_EQ(bad.exit_code, 3) << bad.err;
}

// The environment of rank 1 of 2, as torchrun sets it.
const std::map<std::string, std::string> kRank1{{"RANK", "1"},
                                                {"WORLD_SIZE", "2"},
                                                {"LOCAL_RANK", "1"},
                                                {"LOCAL_WORLD_SIZE", "2"},
                                                {"MASTER_ADDR", "127.0.0.1"},
                                                {"MASTER_PORT", "29500"}};

TEST(ProcessFailures, ARankOfAnotherWorldIsNamed) {
  MPT_SKIP_WITHOUT_MPIRUN();
  // Without mpirun, since MPI would make each process a world of its own.
  const test::ProgramResult result =
      test::run_program({"mpi", "cases", "1000"}, {.env = kRank1, .program = MPT_RANK_CALLS});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("reports rank 0 of 1, but the launcher reports rank 1 of 2"),
            std::string::npos)
      << result.err;
}

TEST(ProcessFailures, AnInterfaceThatIsNoneIsNamed) {
  MPT_SKIP_WITHOUT_TRANSPORT("gloo");
  const test::ProgramResult result = test::run_rank_calls(
      "gloo", 2, {"cases", "1000"}, {.env = {{"GLOO_SOCKET_IFNAME", "no-such-interface"}}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("GLOO_SOCKET_IFNAME"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace mpt
