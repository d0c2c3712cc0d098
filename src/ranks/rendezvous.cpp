#include "ranks/rendezvous.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/hash.h"
#include "ranks/tcp_socket.h"

namespace mpt {
namespace {

// A rank sends:    mpretrain-rendezvous RANK SIZE HASH_OF_RUN_ID ITS_ADDRESS\n
// Rank 0 answers:  ok ITS_ADDRESS\n with the address that the others reach it by,
//                  or: other-run\n, or: failed REASON\n
// To gather, each rank sends a frame and rank 0 answers with one frame per rank. A frame is its
// length as a uint64 in the machine's byte order, and that many bytes.
const std::string kGreeting = "mpretrain-rendezvous";
constexpr size_t kLongestGreeting = 256, kLongestAnswer = 1 << 16, kLongestFrame = 1 << 20;
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
Deadline deadline_of(const RendezvousOptions& options) {
  return std::chrono::steady_clock::now() + options.timeout;
}
bool send_text(const TcpSocket& socket, std::string_view text, Deadline deadline) {
  return socket.send(std::as_bytes(std::span(text)), deadline);
}

std::string frame_of(std::string_view text) {
  const uint64_t length = text.size();
  std::string frame(sizeof length, '\0');
  std::memcpy(frame.data(), &length, sizeof length);
  return frame.append(text);
}
std::optional<std::string> receive_frame(const TcpSocket& socket, Deadline deadline) {
  uint64_t length = 0;
  const auto header = socket.receive(sizeof length, deadline);
  if (!header) return std::nullopt;
  std::memcpy(&length, header->data(), sizeof length);
  if (length > kLongestFrame) return std::nullopt;
  return socket.receive(length, deadline);
}

}  // namespace

// --- rank 0 --------------------------------------------------------------------------------------

class Rendezvous::Host {
 public:
  explicit Host(const RendezvousOptions& options)
      : options_(options), deadline_(deadline_of(options)), port_(listened()) {
    try {
      while (int64_t(guests_.size()) < options_.size - 1) look();
    } catch (const Error& caught) {
      const std::string failed = fmt::format("failed {}\n", caught.what());
      for (const Visitor& guest : guests_) answer(guest, failed);
      for (const Visitor& stranger : strangers_) answer(stranger, failed);
      throw;
    }
    std::ranges::sort(guests_, {}, &Visitor::rank);
    for (const Visitor& guest : guests_) answer(guest, fmt::format("ok {}\n", address_of(guest)));
    port_ = TcpSocket();
  }

  // What the guests reach this machine by; the loopback address if all are on it.
  [[nodiscard]] std::string own_address() const {
    std::string address = "127.0.0.1";
    for (const Visitor& guest : guests_)
      if (is_loopback(address)) address = guest.socket.local_address();
    return address;
  }

  std::vector<std::string> gather(std::string_view mine) {
    const Deadline deadline = deadline_of(options_);
    std::vector<std::string> all{std::string(mine)};
    for (const Visitor& guest : guests_) {
      auto frame = receive_frame(guest.socket, deadline);
      if (!frame) throw lost(guest);
      all.push_back(std::move(*frame));
    }
    std::string frames;
    for (const std::string& text : all) frames += frame_of(text);
    for (const Visitor& guest : guests_)
      if (!send_text(guest.socket, frames, deadline)) throw lost(guest);
    return all;
  }

 private:
  struct Visitor {
    TcpSocket socket;
    std::string text{}, address{};
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
  [[nodiscard]] Error lost(const Visitor& guest) const {
    return error("rank {} disconnected from port {}, or sent nothing within {} s", guest.rank,
                 options_.port, seconds(options_));
  }
  // A guest that came by a loopback address is on this machine.
  [[nodiscard]] std::string address_of(const Visitor& guest) const {
    return is_loopback(guest.address) ? own_address() : guest.address;
  }
  static void answer(const Visitor& visitor, const std::string& text) {
    if (!send_text(visitor.socket, text, std::chrono::steady_clock::now() + kAnswerTime))
      spdlog::debug("a rank disconnected before receiving its answer");
  }

  // Waits for a new connection, or for data on one whose rank is still unknown.
  void look() {
    std::vector<pollfd> waiting{{.fd = port_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Visitor& stranger : strangers_)
      waiting.push_back({.fd = stranger.socket.descriptor(), .events = POLLIN, .revents = 0});
    const int left = milliseconds_left(deadline_);
    if (left == 0) throw_missing();
    if (::poll(waiting.data(), waiting.size(), left) <= 0) return;
    while (auto socket = port_.accepted()) strangers_.push_back({.socket = std::move(*socket)});
    for (Visitor& stranger : std::exchange(strangers_, {})) {
      const bool open = stranger.socket.receive_available(stranger.text, kLongestGreeting);
      if (stranger.text.find('\n') != std::string::npos)
        admit(std::move(stranger));
      else if (open && stranger.text.size() < kLongestGreeting)
        strangers_.push_back(std::move(stranger));
    }
  }

  // Drops peers without a valid greeting, rejects ranks of other runs, and fails on any other
  // error.
  void admit(Visitor guest) {
    std::istringstream words(guest.text);
    std::string greeting, run;
    int64_t size = 0;
    if (!(words >> greeting >> guest.rank >> size >> run >> guest.address) || greeting != kGreeting)
      return;
    if (run != run_hash(options_.run_id)) {
      if (!std::exchange(warned_, true))
        spdlog::warn("port {}: rejected rank {} of another run, at {}", options_.port, guest.rank,
                     guest.address);
      return answer(guest, "other-run\n");
    }
    const int64_t rank = guest.rank;
    const bool twice = std::ranges::any_of(guests_, [&](const auto& g) { return g.rank == rank; });
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
    for (const Visitor& guest : guests_) missing.erase(guest.rank);
    throw error("rank {} did not connect to rank 0 at {} within {} s", fmt::join(missing, ", "),
                place(options_), seconds(options_));
  }

  const RendezvousOptions& options_;
  Deadline deadline_;
  TcpSocket port_;
  std::vector<Visitor> guests_, strangers_;  // guests: by rank, once all have come
  bool warned_ = false;                      // of a rank of another run
};

// --- other ranks ---------------------------------------------------------------------------------

class Rendezvous::Guest {
 public:
  // Retries until rank 0 of this run answers: it may start later, and rank 0 of another run may
  // still be exiting.
  explicit Guest(const RendezvousOptions& options)
      : options_(options), deadline_(deadline_of(options)) {
    std::string reason = "no answer";
    while (!attempt(reason)) {
      if (milliseconds_left(deadline_) == 0)
        throw error("rank {}: could not reach rank 0 at {} within {} s: {}", options_.rank,
                    place(options_), seconds(options_), reason);
      std::this_thread::sleep_for(
          std::min<std::chrono::milliseconds>(kRetryAfter, options_.timeout));
    }
  }

  [[nodiscard]] const std::string& own_address() const { return own_address_; }

  std::vector<std::string> gather(std::string_view mine) {
    const Deadline deadline = deadline_of(options_);
    std::vector<std::string> all;
    bool open = send_text(socket_, frame_of(mine), deadline);
    while (open && std::ssize(all) < options_.size) {
      auto frame = receive_frame(socket_, deadline);
      open = frame.has_value();
      if (open) all.push_back(std::move(*frame));
    }
    if (open) return all;
    throw error("rank {}: rank 0 at {} closed the connection, or sent nothing within {} s",
                options_.rank, place(options_), seconds(options_));
  }

 private:
  bool attempt(std::string& reason) {
    auto socket = TcpSocket::connected(options_.address, options_.port, deadline_, reason);
    if (!socket) return false;
    const std::string greeting =
        fmt::format("{} {} {} {} {}\n", kGreeting, options_.rank, options_.size,
                    run_hash(options_.run_id), socket->local_address());
    std::string text;
    bool open = send_text(*socket, greeting, deadline_);
    // Byte by byte, because frames may follow the line.
    while (open && !text.ends_with('\n') && text.size() < kLongestAnswer &&
           socket->wait_readable(deadline_))
      open = socket->receive_available(text, text.size() + 1);
    if (!text.ends_with('\n')) {
      reason = text.empty() ? "it closed the connection or sent nothing" : not_rank_0(text);
      return false;
    }
    text.pop_back();
    if (text == "other-run") {
      reason = "rank 0 of another run listens there";
      return false;
    }
    if (text.starts_with("failed ")) throw error("rank 0: {}", text.substr(7));
    if (!text.starts_with("ok ")) throw Error(not_rank_0(text));
    own_address_ = text.substr(3);
    socket_ = std::move(*socket);
    return true;
  }
  // Builds the error for an answer that is not rank 0's; quotes its start, printable characters
  // only.
  [[nodiscard]] std::string not_rank_0(const std::string& answer) const {
    std::string said = answer.substr(0, 40);
    std::ranges::replace_if(
        said, [](char c) { return c < ' ' || c > '~'; }, '?');
    return fmt::format(
        "the process at {} is not rank 0 of this program (it answered \"{}\"); set MPT_MASTER_PORT "
        "to another port on all ranks",
        place(options_), said);
  }

  const RendezvousOptions& options_;
  Deadline deadline_;
  TcpSocket socket_;
  std::string own_address_;
};

Rendezvous::Rendezvous(RendezvousOptions options) : options_(std::move(options)) {
  if (options_.size == 1) return;
  if (options_.rank == 0)
    host_ = std::make_unique<Host>(options_);
  else
    guest_ = std::make_unique<Guest>(options_);
  own_address_ = host_ ? host_->own_address() : guest_->own_address();
}
Rendezvous::~Rendezvous() = default;

std::vector<std::string> Rendezvous::gather(std::string_view mine) {
  check(mine.size() <= kLongestFrame, "a rank gives {} bytes to the others", mine.size());
  if (host_) return host_->gather(mine);
  if (guest_) return guest_->gather(mine);
  return {std::string(mine)};
}

}  // namespace mpt
