#include "ranks/mpi/mpi_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "ranks/exchange_transport.h"

namespace mpt {
namespace {

// --- MPI library: initialised once, finalized or abandoned; errors become exceptions -------------

// check_mpi(MPI_Barrier(comm), "MPI_Barrier");
void check_mpi(int status, std::string_view call);

class MpiLibrary {
 public:
  MpiLibrary();
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  [[nodiscard]] MPI_Comm ranks() const { return ranks_; }  // all ranks; our own communicator
  // Finalizes MPI on this rank. All ranks must do so.
  void finish();

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
};

std::string mpi_library_name();  // "Open MPI 4.1.4"

class MpiExchange final : public Exchange {
 public:
  struct Options {
    MPI_Comm ranks = MPI_COMM_NULL;
    int tag = 0;  // equal on all ranks; must differ from the next exchange
    int64_t piece_bytes = 0;
    std::chrono::milliseconds timeout{};
    const std::atomic<bool>* cancelled = nullptr;  // set by another thread to end a wait
    std::string name{};                            // for messages: "all_gather"
  };
  explicit MpiExchange(Options options) : options_(std::move(options)) {}
  ~MpiExchange() override;

  void send(std::span<const std::byte> bytes, int64_t rank) override;
  void receive(std::span<std::byte> bytes, int64_t rank) override;
  void wait() override;

 private:
  struct Message {
    int64_t rank;
    int bytes;
    bool incoming;
  };
  void add(Message message, MPI_Request request);
  bool advance();
  void check_arrived(size_t index, const MPI_Status& status) const;
  [[nodiscard]] std::string waited_for() const;

  Options options_;
  std::vector<Message> messages_;
  std::vector<MPI_Request> requests_;
  size_t open_ = 0;
};

void check_mpi(int status, std::string_view call) {
  if (status == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (MPI_Error_string(status, text.data(), &length) != MPI_SUCCESS) length = 0;
  text.resize(size_t(length));
  throw error("{} failed: {}", call, text);
}

MpiLibrary::MpiLibrary() {
  int begun = 0;
  check_mpi(MPI_Initialized(&begun), "MPI_Initialized");
  check(begun == 0, "MPI is initialized twice in this process");
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    throw error(
        "{} was built without thread support (it provides level {}, MPI_THREAD_SERIALIZED is {}): "
        "use an MPI built with threads",
        mpi_library_name(), provided, int(MPI_THREAD_SERIALIZED));
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

// Without finish(), MPI is not finalized: that would wait for ranks that may never arrive.
MpiLibrary::~MpiLibrary() = default;

void MpiLibrary::finish() {
  check_mpi(MPI_Comm_free(&ranks_), "MPI_Comm_free");
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

std::string mpi_library_name() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  text.resize(size_t(length));
  text.resize(std::min(text.find_first_of(",\n"), text.size()));
  if (const size_t version = text.find(" v"); version != std::string::npos)
    text.erase(version + 1, 1);
  return text;
}

using Clock = std::chrono::steady_clock;

// Back-off of a polling thread, to leave the CPU to computing threads: spins first, because each
// call may move only one fragment of a message in shared memory, then yields and sleeps, for ranks
// that are far behind.
class BackOff {
 public:
  void reset() { begin_ = Clock::now(), calls_ = 0; }
  void pause() {
    if (++calls_ < kBusyCalls) return;
    if (calls_ < kYieldingCalls) return std::this_thread::yield();
    const auto waited = Clock::now() - begin_;
    std::this_thread::sleep_for(waited < std::chrono::seconds(1) ? std::chrono::microseconds(20)
                                                                 : std::chrono::microseconds(500));
  }

 private:
  static constexpr int kBusyCalls = 50, kYieldingCalls = 500;
  Clock::time_point begin_ = Clock::now();
  int calls_ = 0;
};

MpiExchange::~MpiExchange() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (messages_[i].incoming) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void MpiExchange::send(std::span<const std::byte> bytes, int64_t rank) {
  for_pieces(bytes, options_.piece_bytes, [&](std::span<const std::byte> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(piece.data(), int(piece.size()), MPI_BYTE, int(rank), options_.tag,
                        options_.ranks, &request),
              "MPI_Isend");
    add({.rank = rank, .bytes = int(piece.size()), .incoming = false}, request);
  });
}

void MpiExchange::receive(std::span<std::byte> bytes, int64_t rank) {
  for_pieces(bytes, options_.piece_bytes, [&](std::span<std::byte> piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(piece.data(), int(piece.size()), MPI_BYTE, int(rank), options_.tag,
                        options_.ranks, &request),
              "MPI_Irecv");
    add({.rank = rank, .bytes = int(piece.size()), .incoming = true}, request);
  });
}

void MpiExchange::add(Message message, MPI_Request request) {
  messages_.push_back(message);
  requests_.push_back(request);
  ++open_;
}

void MpiExchange::wait() {
  BackOff back_off;
  Clock::time_point deadline = Clock::now() + options_.timeout;
  while (open_ > 0) {
    if (advance()) {
      back_off.reset();
      deadline = Clock::now() + options_.timeout;
      continue;
    }
    if (options_.cancelled != nullptr && *options_.cancelled)
      throw error("{}: cancelled because this rank is exiting", options_.name);
    if (Clock::now() > deadline)
      throw error("{}: {} within {} s", options_.name, waited_for(),
                  std::chrono::duration<double>(options_.timeout).count());
    back_off.pause();
  }
}

// Returns whether any message completed.
bool MpiExchange::advance() {
  bool any = false;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    int done = 0;
    MPI_Status status;
    const int answer = MPI_Test(&requests_[i], &done, &status);
    if (answer != MPI_SUCCESS)
      check_mpi(answer, fmt::format("{}: MPI_Test of a message {} rank {}", options_.name,
                                    messages_[i].incoming ? "from" : "to", messages_[i].rank));
    if (done == 0) continue;
    requests_[i] = MPI_REQUEST_NULL;
    --open_;
    any = true;
    check_arrived(i, status);
  }
  return any;
}

void MpiExchange::check_arrived(size_t index, const MPI_Status& status) const {
  const Message& message = messages_[index];
  if (!message.incoming) return;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  check(bytes == message.bytes, "{}: rank {} sent {} bytes, expected {}", options_.name,
        message.rank, bytes, message.bytes);
}

// "rank 1, 2 did not arrive" or, if everything was received here, "rank 1 did not receive".
std::string MpiExchange::waited_for() const {
  std::set<int64_t> senders, receivers;
  for (size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL)
      (messages_[i].incoming ? senders : receivers).insert(messages_[i].rank);
  if (!senders.empty()) return fmt::format("rank {} did not arrive", fmt::join(senders, ", "));
  return fmt::format("rank {} did not receive", fmt::join(receivers, ", "));
}

constexpr int kTags = 32768;                           // supported by every MPI
constexpr int64_t kMostPieceBytes = int64_t{1} << 30;  // MPI counts in int

class MpiTransport final : public ExchangeTransport {
 public:
  explicit MpiTransport(const ExchangeOptions& options) : ExchangeTransport(options) {
    int rank = 0, size = 0;
    check_mpi(MPI_Comm_rank(library_.ranks(), &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(library_.ranks(), &size), "MPI_Comm_size");
    if (rank != options.rank || size != options.size)
      throw error(
          "{} reports rank {} of {}, but the launcher reports rank {} of {}: start the program "
          "with the mpirun of the MPI that it was built with",
          mpi_library_name(), rank, size, options.rank, options.size);
  }
  // After an exception, other ranks may still be waiting; their launcher ends them when this
  // process exits.
  ~MpiTransport() override {
    try {
      if (meet_at_end()) library_.finish();
    } catch (const std::exception& caught) {
      spdlog::error("{}", caught.what());
    }
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("MPI ({}), {} ranks", mpi_library_name(), size());
  }

  // MPI cannot tell a single rank that another gave up, so MPI_Abort ends all processes. A call in
  // which another thread is waiting returns first, unless it hangs inside MPI.
  void abort(const std::string& cause) noexcept override {
    const auto lock = cancel();
    spdlog::debug("rank {} aborts all ranks: {}", rank(), cause);
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  [[nodiscard]] bool abort_ends_all() const override { return true; }

 private:
  std::unique_ptr<Exchange> begin(int64_t number, const std::string& name) override {
    return std::make_unique<MpiExchange>(
        MpiExchange::Options{.ranks = library_.ranks(),
                             .tag = int(number % kTags),
                             .piece_bytes = std::min(options().piece_bytes, kMostPieceBytes),
                             .timeout = options().timeout,
                             .cancelled = &cancelled(),
                             .name = name});
  }

  MpiLibrary library_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const ExchangeOptions& options) {
  return std::make_unique<MpiTransport>(options);
}

}  // namespace mpt
