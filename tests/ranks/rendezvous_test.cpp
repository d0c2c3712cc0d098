// Ranks connecting to rank 0 over TCP, in any order, and failures along the way.
#include "ranks/rendezvous.h"

#include <array>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "ranks/tcp_socket.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using namespace std::chrono_literals;

class RendezvousTest : public testing::Test {
 protected:
  [[nodiscard]] RendezvousOptions options(int64_t rank, int64_t size) const {
    return {.rank = rank,
            .size = size,
            .address = "127.0.0.1",
            .port = port_,
            .run_id = "run 1",
            .timeout = 20s};
  }
  // Runs every rank in a thread, each `apart` after the previous one; returns the error of each,
  // empty if none.
  static std::vector<std::string> meet(const std::vector<RendezvousOptions>& ranks,
                                       std::chrono::milliseconds apart = 0ms) {
    std::vector<std::string> thrown(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          Rendezvous rendezvous(ranks[i]);
          for (const std::string_view of : {"", "again "}) {
            const auto given = [&](int64_t rank) { return fmt::format("{}{}", of, rank); };
            const std::vector<std::string> all = rendezvous.gather(given(ranks[i].rank));
            ASSERT_EQ(std::ssize(all), ranks[i].size);
            for (int64_t rank = 0; rank < ranks[i].size; ++rank)
              EXPECT_EQ(all[size_t(rank)], given(rank));
          }
          EXPECT_EQ(rendezvous.own_address(), "127.0.0.1");
        } catch (const Error& caught) {
          thrown[i] = caught.what();
        }
      });
      std::this_thread::sleep_for(apart);
    }
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  int port_ = free_port();
};

TEST_F(RendezvousTest, GivesEveryoneTheBytesOfEachRank) {
  EXPECT_EQ(meet({options(0, 4), options(3, 4), options(1, 4), options(2, 4)}),
            std::vector<std::string>(4));
}

TEST_F(RendezvousTest, Rank0MayComeLast) {
  EXPECT_EQ(meet({options(2, 3), options(1, 3), options(0, 3)}, 150ms),
            std::vector<std::string>(3));
}

TEST_F(RendezvousTest, OneRankMeetsNobody) {
  EXPECT_EQ(meet({options(0, 1)}), std::vector<std::string>(1));
}

TEST_F(RendezvousTest, ARankThatDoesNotComeIsNamedToAll) {
  auto ranks = std::vector{options(0, 4), options(1, 4)};
  ranks[0].timeout = 300ms;
  const auto thrown = meet(ranks);
  EXPECT_TRUE(has(thrown[0], "rank 2, 3 did not connect to rank 0")) << thrown[0];
  EXPECT_TRUE(has(thrown[1], "rank 0: rank 2, 3 did not connect")) << thrown[1];
}

TEST_F(RendezvousTest, NobodyComesToRank0) {
  auto rank = options(0, 2);
  rank.timeout = 100ms;
  EXPECT_TRUE(has(meet({rank})[0], "rank 1 did not connect"));
}

TEST_F(RendezvousTest, WithoutRank0) {
  auto rank = options(1, 2);
  rank.timeout = 150ms;
  const auto thrown = meet({rank});
  EXPECT_TRUE(has(thrown[0], "rank 1: could not reach rank 0 at 127.0.0.1:")) << thrown[0];
  EXPECT_TRUE(has(thrown[0], "refused")) << thrown[0];
}

TEST_F(RendezvousTest, AMachineThatIsNone) {
  auto rank = options(1, 2);
  rank.timeout = 150ms;
  rank.address = "no-such-machine.invalid";
  EXPECT_TRUE(has(meet({rank})[0], "could not reach rank 0 at no-such-machine.invalid"));
}

TEST_F(RendezvousTest, ARankThatComesTwice) {
  const auto thrown = meet({options(0, 3), options(1, 3), options(1, 3)}, 50ms);
  for (const std::string& message : thrown)
    EXPECT_TRUE(has(message, "rank 1 connected twice")) << message;
}

TEST_F(RendezvousTest, ARankOfAnotherSize) {
  const auto thrown = meet({options(0, 3), options(1, 2)});
  for (const std::string& message : thrown)
    EXPECT_TRUE(has(message, "rank 1 was launched as one of 2 ranks, rank 0 as one of 3"))
        << message;
}

TEST_F(RendezvousTest, ARankThatIsNone) {
  const auto thrown = meet({options(0, 3), options(3, 3)});
  for (const std::string& message : thrown)
    EXPECT_TRUE(has(message, "rank 3 of 3 connected")) << message;
}

TEST_F(RendezvousTest, ARankOfAnotherRunDoesNotDisturb) {
  const test::CapturedLog log;
  auto stale = options(1, 2);
  stale.run_id = "run 0";
  stale.timeout = 200ms;
  const auto thrown = meet({stale, options(0, 2), options(1, 2)}, 100ms);
  EXPECT_TRUE(has(thrown[0], "could not reach rank 0 at")) << thrown[0];
  EXPECT_EQ(thrown[1], "");
  EXPECT_EQ(thrown[2], "");
}

// A leftover of an earlier run is listening when the ranks of the next one arrive, and exits.
TEST_F(RendezvousTest, ARank0OfAnotherRunIsWaitedOut) {
  const test::CapturedLog log;
  auto stale = options(0, 2);
  stale.run_id = "run 0";
  stale.timeout = 200ms;
  std::vector<std::string> thrown;
  std::thread visitor([&] { thrown = meet({options(1, 2)}); });
  EXPECT_TRUE(has(meet({stale})[0], "rank 1 did not connect"));
  EXPECT_EQ(meet({options(0, 2)})[0], "");
  visitor.join();
  EXPECT_EQ(thrown[0], "");
}

TEST_F(RendezvousTest, APortThatIsTaken) {
  const TcpSocket taken = TcpSocket::listening(port_);
  const auto thrown = meet({options(0, 2)});
  EXPECT_TRUE(has(thrown[0], std::to_string(port_))) << thrown[0];
  EXPECT_TRUE(has(thrown[0], "MPT_MASTER_PORT")) << thrown[0];
}

TEST_F(RendezvousTest, AnotherProgramAtThePort) {
  const TcpSocket other = TcpSocket::listening(port_);
  std::thread program([&] {
    ASSERT_TRUE(other.wait_readable(std::chrono::steady_clock::now() + 10s));
    const auto connection = other.accepted();
    ASSERT_TRUE(connection);
    const std::string text = "HTTP/1.1 400\a\n";
    ASSERT_TRUE(
        connection->send(std::as_bytes(std::span(text)), std::chrono::steady_clock::now() + 10s));
  });
  const auto thrown = meet({options(1, 2)});
  program.join();
  EXPECT_TRUE(has(thrown[0], "is not rank 0 of this program")) << thrown[0];
  EXPECT_TRUE(has(thrown[0], "\"HTTP/1.1 400?\"")) << thrown[0];
}

TEST_F(RendezvousTest, StrangersDoNotDisturb) {
  std::vector<std::string> thrown;
  std::thread ranks([&] { thrown = meet({options(0, 2), options(1, 2)}, 300ms); });
  std::string reason;
  const Deadline deadline = std::chrono::steady_clock::now() + 10s;
  std::vector<TcpSocket> strangers;
  for (const std::string& text :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, 'x')}) {
    std::optional<TcpSocket> stranger;
    while (!stranger) stranger = TcpSocket::connected("127.0.0.1", port_, deadline, reason);
    EXPECT_TRUE(stranger->send(std::as_bytes(std::span(text)), deadline));
    strangers.push_back(std::move(*stranger));
  }
  ranks.join();
  EXPECT_EQ(thrown, std::vector<std::string>(2));
}

TEST_F(RendezvousTest, APeerCannotSendMoreThanIsAskedFor) {
  const Deadline deadline = std::chrono::steady_clock::now() + 10s;
  const TcpSocket port = TcpSocket::listening(port_);
  const std::string sent(5000, 'x');
  std::string reason, text = "12";
  const auto peer = TcpSocket::connected("127.0.0.1", port_, deadline, reason);
  ASSERT_TRUE(peer) << reason;
  ASSERT_TRUE(port.wait_readable(deadline));
  const auto connection = port.accepted();
  ASSERT_TRUE(connection);
  ASSERT_TRUE(peer->send(std::as_bytes(std::span(sent)), deadline));
  ASSERT_TRUE(connection->wait_readable(deadline));
  EXPECT_TRUE(connection->receive_available(text, 7));
  EXPECT_EQ(text, "12xxxxx");
}

// A rank that leaves between two exchanges is named on rank 0; the others see rank 0 leave.
TEST_F(RendezvousTest, ARankThatLeavesIsNamed) {
  std::thread second([&] { Rendezvous(options(1, 3)).gather("b"); });
  std::thread third([&] {
    Rendezvous rendezvous(options(2, 3));
    rendezvous.gather("c");
    EXPECT_ERROR(rendezvous.gather("d"), "rank 2: rank 0 at 127.0.0.1:", "closed the connection");
  });
  {
    Rendezvous rendezvous(options(0, 3));
    EXPECT_EQ(rendezvous.gather("a"), (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_ERROR(rendezvous.gather("e"), "rank 1 disconnected from port");
  }
  second.join();
  third.join();
}

TEST_F(RendezvousTest, MoreThanARankMayGiveIsALogicError) {
  EXPECT_THROW(Rendezvous(options(0, 1)).gather(std::string((1 << 20) + 1, 'x')), LogicError);
}

TEST_F(RendezvousTest, ManyRanks) {
  std::vector<RendezvousOptions> ranks;
  for (int64_t rank = 0; rank < 40; ++rank) ranks.push_back(options(rank, 40));
  EXPECT_EQ(meet(ranks), std::vector<std::string>(40));
}

}  // namespace
}  // namespace mpt
