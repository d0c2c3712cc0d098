// Communicators: one rank returns at once and has no side effects, a plan refuses to communicate,
// and several ranks keep device work in order, report failures, and end together.
#include "ranks/communicator.h"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/check.h"
#include "device/backends.h"
#include "device/profiling.h"
#include "ranks/launch_environment.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/forwarding_transport.h"
#include "support/thread_ranks.h"

namespace mpt {
namespace {

using namespace std::chrono_literals;

// Records a communicator's requests to its device.
class NotingDevice final : public ForwardingDevice {
 public:
  NotingDevice() : NotingDevice(make_cpu_device(1)) {}

  std::unique_ptr<CommStream> make_comm_stream() override {
    ++queues;
    return inner_.make_comm_stream();
  }
  void guard_waits(WaitGuard guard) override { guarded = guard != nullptr; }
  void push_scope(const char* name, double /*flops*/) override { scopes.emplace_back(name); }
  void pop_scope() override {}

  int queues = 0;
  bool guarded = false;
  std::vector<std::string> scopes;

 private:
  explicit NotingDevice(std::unique_ptr<Device> device)
      : ForwardingDevice(*device), device_(std::move(device)) {}
  std::unique_ptr<Device> device_;
};

Tensor view(std::vector<float>& values) {
  const auto n = int64_t(values.size());
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1, n, n};
}

// Calls every collective.
void make_all_calls(Communicator& ranks) {
  std::vector<float> mine{1, 2};
  std::vector<std::vector<float>> parts(size_t(ranks.size()), mine);
  std::vector<Tensor> views;
  for (std::vector<float>& part : parts) views.push_back(view(part));
  ranks.all_gather(views);
  ranks.all_reduce_max(view(mine));
  ranks.wait(ranks.run([&](Transport& transport) { transport.barrier(); }));
  EXPECT_EQ(ranks.gather_numbers(7), std::vector<int64_t>(size_t(ranks.size()), 7));
  EXPECT_EQ(ranks.gather_texts("word"), std::vector<std::string>(size_t(ranks.size()), "word"));
}

void expect_one_rank(Communicator& ranks) {
  EXPECT_EQ(ranks.rank(), 0);
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_TRUE(ranks.is_single() && ranks.is_root());
  EXPECT_EQ(ranks.name(), "");
}

TEST(OneRank, CallsReturnAtOnceOnTheSameThread) {
  Communicator& ranks = Communicator::single();
  expect_one_rank(ranks);
  make_all_calls(ranks);
  std::thread::id thread;
  const auto event = ranks.run([&](Transport&) { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());  // before wait()
  ranks.wait(event);
  EXPECT_NO_THROW(ranks.settle());
}

// No second stream or thread, no guard, no row in a profile.
TEST(OneRank, AsksNothingOfTheDevice) {
  NotingDevice device;
  Communicator ranks = Communicator::connect(LaunchEnvironment{}, 1s, device);
  expect_one_rank(ranks);
  make_all_calls(ranks);
  EXPECT_EQ(device.queues, 0);
  EXPECT_FALSE(device.guarded);
  EXPECT_TRUE(device.scopes.empty());
}

TEST(OneRank, PassesErrorsOnAsTheyAre) {
  test::CapturedLog log;
  const auto fail = [] { throw error("no data"); };
  try {
    Communicator::single().together(fail);
    FAIL();
  } catch (const Error& caught) {
    EXPECT_STREQ(caught.what(), "no data");
  }
  EXPECT_ERROR(Communicator::single().or_abort(fail), "no data");
  EXPECT_EQ(log.text(), "");
}

TEST(PlannedRanks, KnowTheirPlaceAndRefuseEveryCall) {
  Communicator ranks = Communicator::planned(2, 5);
  EXPECT_EQ(ranks.rank(), 2);
  EXPECT_EQ(ranks.size(), 5);
  EXPECT_FALSE(ranks.is_single() || ranks.is_root());
  EXPECT_EQ(ranks.name(), "");
  std::vector<float> values{1};
  const Tensor one = view(values);
  EXPECT_THROW(ranks.all_gather({&one, 1}), LogicError);
  EXPECT_THROW(ranks.all_reduce_max(one), LogicError);
  EXPECT_THROW(ranks.gather_host({}, {}), LogicError);
  EXPECT_THROW(ranks.gather_numbers(1), LogicError);
  EXPECT_THROW(ranks.gather_texts("a"), LogicError);
  EXPECT_THROW(ranks.together([] {}), LogicError);
  EXPECT_THROW(ranks.run([&](Transport& t) { t.reduce_scatter_sum({&one, 1}, one); }), LogicError);
  EXPECT_THROW(ranks.run([&](Transport& t) { t.broadcast_host({}, 0); }), LogicError);
  EXPECT_THROW(ranks.run([&](Transport& t) { t.barrier(); }), LogicError);
  EXPECT_THROW(static_cast<void>(Communicator::planned(5, 5)), LogicError);
}

TEST(PlannedRanks, OneIsOneRank) {
  Communicator ranks = Communicator::planned(0, 1);
  ranks.all_reduce_max({});
  EXPECT_NO_THROW(ranks.together([] {}));
}

// --- several ranks, as threads -------------------------------------------------------------------

struct Rank {
  explicit Rank(Transport& transport)
      : ranks(std::make_unique<test::ForwardingTransport>(transport), device.make_comm_stream(),
              device) {}
  NotingDevice device;
  Communicator ranks;
};

TEST(SeveralRanks, ExchangeWithinTheDevicesOrder) {
  run_ranks(3, [](Transport& transport) {
    Rank rank(transport);
    std::vector<float> values(3, -1);
    values[size_t(rank.ranks.rank())] = float(rank.ranks.rank());
    std::vector<Tensor> parts;
    for (float& value : values)
      parts.push_back({reinterpret_cast<std::byte*>(&value), DType::kF32, 1, 1, 1});
    rank.ranks.all_gather(parts);
    EXPECT_EQ(values, (std::vector<float>{0, 1, 2}));
    values[0] = float(rank.ranks.rank());
    rank.ranks.all_reduce_max(parts[0]);
    EXPECT_EQ(values[0], 2);
    EXPECT_EQ(rank.device.scopes, (std::vector<std::string>{"communication", "communication"}));
    EXPECT_EQ(rank.ranks.name(), "threads, 3 ranks");
    EXPECT_EQ(rank.ranks.is_root(), rank.ranks.rank() == 0);
  });
}

TEST(SeveralRanks, GatherTextsOfAnyLength) {
  run_ranks(3, [](Transport& transport) {
    Rank rank(transport);
    const std::vector<std::string> texts{"", "a longer one", "b"};
    EXPECT_EQ(rank.ranks.gather_texts(texts[size_t(rank.ranks.rank())]), texts);
    EXPECT_EQ(rank.ranks.gather_texts(""), std::vector<std::string>(3));
    EXPECT_EQ(rank.ranks.gather_numbers(rank.ranks.rank() * 10), (std::vector<int64_t>{0, 10, 20}));
    make_all_calls(rank.ranks);
  });
}

TEST(SeveralRanks, GuardTheDevicesWaitsWhileTheyLast) {
  run_ranks(2, [](Transport& transport) {
    NotingDevice device;
    {
      Communicator ranks(std::make_unique<test::ForwardingTransport>(transport),
                         device.make_comm_stream(), device);
      EXPECT_TRUE(device.guarded);
    }
    EXPECT_FALSE(device.guarded);
  });
}

TEST(SeveralRanks, ErrorsOfOneAreThrownOnAll) {
  run_ranks(3, [](Transport& transport) {
    Rank rank(transport);
    const auto work = [&] {
      if (rank.ranks.rank() == 1) throw error("the disk is full");
    };
    EXPECT_ERROR(rank.ranks.together(work), "rank 1: the disk is full");
    EXPECT_NO_THROW(rank.ranks.together([] {}));
  });
}

TEST(SeveralRanks, AreToldWhyOneEnds) {
  test::CapturedLog log;
  std::atomic<int> told = 0;
  const auto rank_main = [&](Transport& transport) {
    Rank rank(transport);
    rank.ranks.or_abort([&] {
      if (rank.ranks.rank() == 1) throw error("the disk is full");
      try {
        rank.ranks.gather_numbers(1);
      } catch (const Error& caught) {
        if (std::string(caught.what()) == "rank 1 failed: the disk is full") ++told;
        throw;
      }
    });
  };
  EXPECT_ERROR(run_ranks(3, rank_main), "the disk is full");
  EXPECT_EQ(told, 2);
  EXPECT_NE(log.text().find("rank 1 of 3: the disk is full"), std::string::npos) << log.text();
}

// Work that was submitted but has not started is dropped, and no waiter continues as if it had run.
TEST(SeveralRanks, SettleDropsWhatHasNotBegun) {
  run_ranks(2, [](Transport& transport) {
    Rank rank(transport);
    std::promise<void> may_end;
    int runs = 0;
    rank.ranks.run([&](Transport&) { may_end.get_future().wait(); });
    const auto dropped = rank.ranks.run([&](Transport&) { ++runs; });
    std::thread settles([&] { rank.ranks.settle(); });
    EXPECT_THROW(rank.ranks.wait(dropped), LogicError);
    may_end.set_value();
    settles.join();
    EXPECT_THROW(rank.ranks.wait(rank.ranks.run([&](Transport&) { ++runs; })), LogicError);
    EXPECT_EQ(runs, 0);
  });
}

TEST(SeveralRanks, WorkRunsAfterSettlingWhereNothingWasDropped) {
  run_ranks(2, [](Transport& transport) {
    Rank rank(transport);
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rank.ranks.gather_numbers(i + rank.ranks.rank()), std::vector<int64_t>({i, i + 1}));
      rank.ranks.settle();
    }
  });
}

}  // namespace
}  // namespace mpt
