#include "ranks/gloo/gloo_transport.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "ranks/relayed_error.h"

namespace mpt {
namespace {

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Why a rank leaves: a message of its own, sent outside the exchanges, of constant length.
constexpr size_t kWords = 1024;
constexpr uint64_t kWordsSlot = ~uint64_t{0};
constexpr auto kWordsTime = std::chrono::milliseconds(500);

// Messages match by slot. Ranks that are out of step, or expect another size, never match.
uint64_t slot_of(int64_t number, size_t bytes) {
  return (uint64_t(number) % (1 << 20)) << 40 | (bytes & ((uint64_t{1} << 40) - 1));
}

// Connections to all other ranks, and what they say when they leave.
class Connections {
 public:
  Connections(const ExchangeOptions& options, Rendezvous& rendezvous);

  Buffer buffer(std::span<const std::byte> bytes) {
    return context_->createUnboundBuffer(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  // What `rank` said as it left; empty if nothing has arrived. Only after its connection is lost.
  std::string last_words(int64_t rank);
  // Tells all others `cause`, or what another rank said before.
  void say_last_words(const std::string& cause) noexcept;

 private:
  void connect(int64_t rank, const std::string& addresses);
  template <class F>
  void for_others(const F& f) const {
    for (int64_t rank = 0; rank < options_.size; ++rank)
      if (rank != options_.rank) f(rank);
  }

  ExchangeOptions options_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::vector<std::array<char, kWords>> heard_;
  std::vector<Buffer> hearing_;  // null for this rank
  std::string heard_first_;
};

// Threads created meanwhile do not preempt others as they wake. Gloo's thread polls for a lock that
// the thread it preempts may hold: for a time slice of 3 ms, where ranks have one core each.
class NoPreemption {
 public:
  NoPreemption() : before_(::sched_getscheduler(0)) { set(SCHED_BATCH); }
  ~NoPreemption() { set(before_); }
  NoPreemption(const NoPreemption&) = delete;
  NoPreemption& operator=(const NoPreemption&) = delete;

 private:
  static void set(int policy) {
    const sched_param unused{};
    ::sched_setscheduler(0, policy, &unused);
  }
  int before_;
};

std::shared_ptr<gloo::transport::Device> tcp_device(const std::string& own_address) {
  gloo::transport::tcp::attr where;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"))
    where.iface = interface;
  else
    where.hostname = own_address;
  try {
    const NoPreemption of_its_thread;
    return gloo::transport::tcp::CreateDevice(where);
  } catch (const std::exception& caught) {
    throw error(
        "Gloo cannot use {} of this machine: {}; GLOO_SOCKET_IFNAME names the interface to use",
        where.iface.empty() ? "address " + own_address : "interface " + where.iface, caught.what());
  }
}

Connections::Connections(const ExchangeOptions& options, Rendezvous& rendezvous)
    : options_(options),
      context_(tcp_device(rendezvous.own_address())
                   ->createContext(int(options.rank), int(options.size))),
      heard_(size_t(options.size)),
      hearing_(size_t(options.size)) {
  context_->setTimeout(options.timeout);
  std::string listening;
  for_others([&](int64_t rank) {
    const std::vector<char> address = context_->createPair(int(rank))->address().bytes();
    listening.append(address.begin(), address.end());
  });
  const std::vector<std::string> of_ranks = rendezvous.gather(listening);
  for_others([&](int64_t rank) { connect(rank, of_ranks[size_t(rank)]); });
  for_others([&](int64_t rank) {
    std::array<char, kWords>& words = heard_[size_t(rank)];
    hearing_[size_t(rank)] = context_->createUnboundBuffer(words.data(), words.size());
    hearing_[size_t(rank)]->recv(int(rank), kWordsSlot);
  });
}

// addresses: of the other ranks' ends at `rank`, in rank order.
void Connections::connect(int64_t rank, const std::string& addresses) {
  const size_t bytes = addresses.size() / size_t(options_.size - 1);
  const int64_t place = options_.rank < rank ? options_.rank : options_.rank - 1;
  const char* const first = addresses.data() + size_t(place) * bytes;
  try {
    context_->getPair(int(rank))->connect({first, first + bytes});
  } catch (const std::exception& caught) {
    throw error("rank {} could not connect to rank {}: {}", options_.rank, rank, caught.what());
  }
}

std::string Connections::last_words(int64_t rank) {
  try {
    if (!hearing_[size_t(rank)]->waitRecv(std::chrono::milliseconds(0))) return "";
  } catch (const std::exception&) {
    return "";
  }
  const std::array<char, kWords>& words = heard_[size_t(rank)];
  const std::string text{words.data(), strnlen(words.data(), words.size())};
  if (heard_first_.empty()) heard_first_ = text;
  return text;
}

void Connections::say_last_words(const std::string& cause) noexcept {
  try {
    const std::string text = heard_first_.empty()
                                 ? fmt::format("rank {} failed: {}", options_.rank, cause)
                                 : heard_first_;
    std::array<char, kWords> words{};
    std::copy_n(text.data(), std::min(text.size(), words.size()), words.data());
    std::vector<Buffer> saying;
    for_others([&](int64_t rank) {
      saying.push_back(context_->createUnboundBuffer(words.data(), words.size()));
      saying.back()->send(int(rank), kWordsSlot);
    });
    for (const Buffer& one : saying) one->waitSend(kWordsTime);
  } catch (const std::exception&) {  // some have left already
  }
}

class GlooExchange;
// The exchange that a rank is in, for another thread that ends it.
struct Current {
  std::mutex mutex{};
  GlooExchange* exchange = nullptr;
};

class GlooExchange final : public Exchange {
 public:
  GlooExchange(Connections& connections, const ExchangeOptions& options, int64_t number,
               std::string name, const std::atomic<bool>& cancelled, Current& current)
      : connections_(connections),
        options_(options),
        number_(number),
        name_(std::move(name)),
        cancelled_(cancelled),
        current_(current) {
    const std::lock_guard lock(current_.mutex);
    current_.exchange = this;
  }
  ~GlooExchange() override {
    const std::lock_guard lock(current_.mutex);
    current_.exchange = nullptr;
  }

  void send(std::span<const std::byte> bytes, int64_t rank) override {
    for_pieces(bytes, options_.piece_bytes, [&](std::span<const std::byte> piece) {
      add({rank, false}, piece);
    });
  }
  void receive(std::span<std::byte> bytes, int64_t rank) override {
    for_pieces(bytes, options_.piece_bytes, [&](std::span<std::byte> piece) {
      add({rank, true}, piece);
    });
  }
  void wait() override {
    for (; waited_ < messages_.size(); ++waited_) {
      bool done = false;
      attempt(messages_[waited_].rank, [&] { done = !cancelled_ && waits(messages_[waited_]); });
      if (!done) throw error("{}: cancelled because this rank is exiting", name_);
    }
  }
  // Ends wait(). Under the lock of Current.
  void cancel() {
    for (const Message& message : messages_) {
      message.buffer->abortWaitRecv();
      message.buffer->abortWaitSend();
    }
  }

 private:
  struct Message {
    int64_t rank;
    bool incoming;
    Buffer buffer{};
  };

  void add(Message message, std::span<const std::byte> bytes) {
    message.buffer = connections_.buffer(bytes);
    const uint64_t slot = slot_of(number_, bytes.size());
    attempt(message.rank, [&] {
      if (message.incoming)
        message.buffer->recv(int(message.rank), slot);
      else
        message.buffer->send(int(message.rank), slot);
    });
    const std::lock_guard lock(current_.mutex);
    messages_.push_back(std::move(message));
  }
  [[nodiscard]] bool waits(const Message& message) const {
    return message.incoming ? message.buffer->waitRecv(options_.timeout)
                            : message.buffer->waitSend(options_.timeout);
  }
  // Gloo gives up all connections at the first timeout; messages that had arrived stay so.
  [[nodiscard]] bool has_arrived(const Message& message) const {
    try {
      return message.buffer->waitRecv(std::chrono::milliseconds(0));
    } catch (const std::exception&) {
      return false;
    }
  }

  // Turns what Gloo throws into an Error that names the rank.
  void attempt(int64_t rank, const std::function<void()>& call) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      call();
    } catch (const std::exception& caught) {
      if (std::chrono::steady_clock::now() - begin >= options_.timeout) throw late();
      spdlog::debug("{}: {}", name_, caught.what());
      const std::string words = connections_.last_words(rank);
      if (!words.empty()) throw RelayedError(words);
      throw error("{}: rank {} disconnected: its process ended, or the network failed", name_,
                  rank);
    }
  }
  [[nodiscard]] Error late() const {
    std::set<int64_t> senders, receivers;
    for (size_t i = waited_; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      if (!message.incoming) receivers.insert(message.rank);
      if (message.incoming && (i == waited_ || !has_arrived(message))) senders.insert(message.rank);
    }
    const double seconds = std::chrono::duration<double>(options_.timeout).count();
    if (!senders.empty())
      return error("{}: rank {} did not arrive within {} s", name_, fmt::join(senders, ", "),
                   seconds);
    return error("{}: rank {} did not receive within {} s", name_, fmt::join(receivers, ", "),
                 seconds);
  }

  Connections& connections_;
  const ExchangeOptions& options_;
  int64_t number_;
  std::string name_;
  const std::atomic<bool>& cancelled_;
  Current& current_;
  std::vector<Message> messages_;
  size_t waited_ = 0;  // messages that are complete
};

class GlooTransport final : public ExchangeTransport {
 public:
  GlooTransport(const ExchangeOptions& options, Rendezvous& rendezvous)
      : ExchangeTransport(options), connections_(options, rendezvous) {}
  ~GlooTransport() override {
    try {
      meet_at_end();
    } catch (const std::exception& caught) {
      spdlog::error("{}", caught.what());
    }
  }

  [[nodiscard]] std::string name() const override { return fmt::format("Gloo, {} ranks", size()); }

  void abort(const std::string& cause) noexcept override {
    const auto lock = cancel();
    connections_.say_last_words(cause);
  }

 private:
  void wake() override {
    const std::lock_guard lock(current_.mutex);
    if (current_.exchange != nullptr) current_.exchange->cancel();
  }
  std::unique_ptr<Exchange> begin(int64_t number, const std::string& name) override {
    return std::make_unique<GlooExchange>(connections_, options(), number, name, cancelled(),
                                          current_);
  }

  Connections connections_;
  Current current_;
};

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(const ExchangeOptions& options,
                                               Rendezvous& rendezvous) {
  return std::make_unique<GlooTransport>(options, rendezvous);
}

}  // namespace mpt
