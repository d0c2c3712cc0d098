#include "ranks/rendezvous.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "core/check.h"
#include "core/io/hash.h"
#include "ranks/tcp_socket.h"

namespace mpt {
namespace {

// A rank sends:    mpretrain-rendezvous RANK SIZE HASH_OF_RUN_ID\n
// Rank 0 answers:  ok BYTES\n and that many bytes, or: other-run\n, or: failed REASON\n
const std::string kGreeting = "mpretrain-rendezvous";
constexpr size_t kLongestGreeting = 256, kLongestAnswer = 1 << 16;  // bytes
constexpr auto kAnswerTime = std::chrono::seconds(10);  // for a rank to receive its answer
constexpr auto kRetryAfter = std::chrono::milliseconds(100);

std::string run_hash(const std::string& run_id) {
  return hash_bytes(std::as_bytes(std::span(run_id)));
}
std::string place(const RendezvousOptions& options) {
  return fmt::format("{}:{}", options.address, options.port);
}
double seconds(const RendezvousOptions& options) {
  return std::chrono::duration<double>(options.timeout).count();
}
bool send_text(const TcpSocket& socket, const std::string& text, Deadline deadline) {
  return socket.send(std::as_bytes(std::span(text)), deadline);
}

// --- rank 0 --------------------------------------------------------------------------------------

class Host {
 public:
  explicit Host(const RendezvousOptions& options)
      : options_(options),
        deadline_(std::chrono::steady_clock::now() + options.timeout),
        port_(listened()) {}

  void give(std::span<const std::byte> bytes) {
    try {
      while (int64_t(guests_.size()) < options_.size - 1) look();
    } catch (const Error& caught) {
      for (const Guest& guest : guests_)
        answer(guest.socket, fmt::format("failed {}\n", caught.what()));
      for (const Guest& guest : strangers_)
        answer(guest.socket, fmt::format("failed {}\n", caught.what()));
      throw;
    }
    for (const Guest& guest : guests_) {
      answer(guest.socket, fmt::format("ok {}\n", bytes.size()));
      if (!guest.socket.send(bytes, std::chrono::steady_clock::now() + kAnswerTime))
        throw error("rank {} disconnected from port {} before the handshake finished", guest.rank,
                    options_.port);
    }
  }

 private:
  struct Guest {
    TcpSocket socket;
    std::string text{};
    int64_t rank = -1;
  };

  [[nodiscard]] TcpSocket listened() const {
    try {
      return TcpSocket::listening(options_.port);
    } catch (const Error& caught) {
      throw error(
          "{}; the other ranks connect to rank 0 there. Set MPT_MASTER_PORT to another port on all "
          "ranks",
          caught.what());
    }
  }
  static void answer(const TcpSocket& socket, const std::string& text) {
    if (!send_text(socket, text, std::chrono::steady_clock::now() + kAnswerTime))
      spdlog::debug("a rank disconnected before receiving its answer");
  }

  // Waits for a new connection, or for data on one whose rank is still unknown.
  void look() {
    std::vector<pollfd> waiting{{.fd = port_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Guest& stranger : strangers_)
      waiting.push_back({.fd = stranger.socket.descriptor(), .events = POLLIN, .revents = 0});
    const int left = milliseconds_left(deadline_);
    if (left == 0) throw_missing();
    if (::poll(waiting.data(), waiting.size(), left) <= 0) return;
    while (auto socket = port_.accepted()) strangers_.push_back({.socket = std::move(*socket)});
    std::vector<Guest> still_strangers;
    std::vector<Guest> now = std::move(strangers_);
    strangers_.clear();
    for (Guest& stranger : now) {
      const bool open = stranger.socket.receive_available(stranger.text, kLongestGreeting);
      if (stranger.text.find('\n') != std::string::npos)
        admit(std::move(stranger));
      else if (open && stranger.text.size() < kLongestGreeting)
        strangers_.push_back(std::move(stranger));
    }
  }

  // Drops peers without a valid greeting, rejects ranks of other runs, and fails on any other
  // error.
  void admit(Guest guest) {
    std::istringstream words(guest.text);
    std::string greeting, run;
    int64_t size = 0;
    if (!(words >> greeting >> guest.rank >> size >> run) || greeting != kGreeting) return;
    if (run != run_hash(options_.run_id)) {
      spdlog::warn("port {}: rejected a rank of another run", options_.port);
      return answer(guest.socket, "other-run\n");
    }
    const int64_t rank = guest.rank;
    const bool twice =
        std::any_of(guests_.begin(), guests_.end(), [&](const Guest& g) { return g.rank == rank; });
    guests_.push_back(std::move(guest));
    if (size != options_.size)
      throw error("rank {} was launched as one of {} ranks, rank 0 as one of {}", rank, size,
                  options_.size);
    if (rank < 1 || rank >= options_.size)
      throw error("rank {} of {} connected; expected ranks 1 to {}", rank, size, options_.size - 1);
    if (twice) throw error("rank {} connected twice: two processes have the same rank", rank);
  }

  [[noreturn]] void throw_missing() const {
    std::set<int64_t> missing;
    for (int64_t rank = 1; rank < options_.size; ++rank) missing.insert(rank);
    for (const Guest& guest : guests_) missing.erase(guest.rank);
    throw error("rank {} did not connect to rank 0 at {} within {} s", fmt::join(missing, ", "),
                place(options_), seconds(options_));
  }

  const RendezvousOptions& options_;
  Deadline deadline_;
  TcpSocket port_;
  std::vector<Guest> guests_, strangers_;
};

// --- other ranks ---------------------------------------------------------------------------------

class Visit {
 public:
  explicit Visit(const RendezvousOptions& options)
      : options_(options), deadline_(std::chrono::steady_clock::now() + options.timeout) {}

  // Retries until rank 0 of this run answers: it may start later, and rank 0 of another run may
  // still be exiting.
  void take(std::span<std::byte> bytes) {
    std::string reason = "no answer";
    while (!attempt(bytes, reason)) {
      if (milliseconds_left(deadline_) == 0)
        throw error("rank {}: could not reach rank 0 at {} within {} s: {}", options_.rank,
                    place(options_), seconds(options_), reason);
      std::this_thread::sleep_for(
          std::min<std::chrono::milliseconds>(kRetryAfter, options_.timeout));
    }
  }

 private:
  bool attempt(std::span<std::byte> bytes, std::string& reason) {
    const auto socket = TcpSocket::connected(options_.address, options_.port, deadline_, reason);
    if (!socket) return false;
    const std::string greeting = fmt::format("{} {} {} {}\n", kGreeting, options_.rank,
                                             options_.size, run_hash(options_.run_id));
    std::string text;
    size_t line = std::string::npos;
    bool open = send_text(*socket, greeting, deadline_);
    while (open && (line = text.find('\n')) == std::string::npos && text.size() < kLongestAnswer &&
           socket->wait_readable(deadline_))
      open = socket->receive_available(text, kLongestAnswer);
    line = text.find('\n');
    if (line == std::string::npos) {
      reason = text.empty() ? "it closed the connection or sent nothing" : not_rank_0(text);
      return false;
    }
    const std::string answer = text.substr(0, line);
    text.erase(0, line + 1);
    if (answer == "other-run") {
      reason = "rank 0 of another run listens there";
      return false;
    }
    if (answer.starts_with("failed ")) throw error("rank 0: {}", answer.substr(7));
    if (answer != fmt::format("ok {}", bytes.size())) throw Error(not_rank_0(answer));
    while (open && text.size() < bytes.size() && socket->wait_readable(deadline_))
      // One extra byte reveals an answer that is too long.
      open = socket->receive_available(text, bytes.size() + 1);
    if (text.size() != bytes.size())
      throw error("rank 0 at {} sent {} of {} bytes", place(options_), text.size(), bytes.size());
    std::memcpy(bytes.data(), text.data(), bytes.size());
    return true;
  }
  // Builds the error for an answer that is not rank 0's; quotes its start, printable characters
  // only.
  [[nodiscard]] std::string not_rank_0(const std::string& answer) const {
    std::string said = answer.substr(0, 40);
    std::replace_if(
        said.begin(), said.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return fmt::format(
        "the process at {} is not rank 0 of this program (it answered \"{}\"); set MPT_MASTER_PORT "
        "to another port on all ranks",
        place(options_), said);
  }

  const RendezvousOptions& options_;
  Deadline deadline_;
};

}  // namespace

void share_bytes_of_rank_0(std::span<std::byte> bytes, const RendezvousOptions& options) {
  if (options.size == 1) return;
  if (options.rank == 0)
    Host(options).give(bytes);
  else
    Visit(options).take(bytes);
}

}  // namespace mpt
