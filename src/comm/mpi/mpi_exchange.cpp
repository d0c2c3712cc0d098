#include "comm/mpi/mpi_exchange.h"

#include <algorithm>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/mpi/mpi_library.h"

namespace mpt {
namespace {

using Clock = std::chrono::steady_clock;

// How a waiting thread leaves the processor to threads that compute: messages in shared memory need to be
// asked for often, as each call may move a fragment only, ranks that are far behind need not.
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

}  // namespace

MpiExchange::~MpiExchange() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (messages_[i].incoming) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void MpiExchange::send(std::span<const std::byte> bytes, int64_t rank) {
  for (size_t first = 0; first < bytes.size(); first += size_t(options_.piece_bytes)) {
    const auto piece = bytes.subspan(first, std::min(bytes.size() - first, size_t(options_.piece_bytes)));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(piece.data(), int(piece.size()), MPI_BYTE, int(rank), options_.tag, options_.ranks,
                        &request),
              "MPI_Isend");
    add({.rank = rank, .bytes = int(piece.size()), .incoming = false}, request);
  }
}

void MpiExchange::receive(std::span<std::byte> bytes, int64_t rank) {
  for (size_t first = 0; first < bytes.size(); first += size_t(options_.piece_bytes)) {
    const auto piece = bytes.subspan(first, std::min(bytes.size() - first, size_t(options_.piece_bytes)));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(piece.data(), int(piece.size()), MPI_BYTE, int(rank), options_.tag, options_.ranks,
                        &request),
              "MPI_Irecv");
    add({.rank = rank, .bytes = int(piece.size()), .incoming = true}, request);
  }
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
      throw error("{}: given up, as this rank ends", options_.name);
    if (Clock::now() > deadline)
      throw error("{}: {} within {} s", options_.name, waited_for(),
                  std::chrono::duration<double>(options_.timeout).count());
    back_off.pause();
  }
}

// Whether anything arrived.
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
  check(bytes == message.bytes, "{}: rank {} sent {} bytes where {} were expected", options_.name,
        message.rank, bytes, message.bytes);
}

// "rank 1, 2 did not send" or, where all has arrived here, "rank 1 did not receive".
std::string MpiExchange::waited_for() const {
  std::set<int64_t> senders, receivers;
  for (size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL)
      (messages_[i].incoming ? senders : receivers).insert(messages_[i].rank);
  if (!senders.empty()) return fmt::format("rank {} did not come", fmt::join(senders, ", "));
  return fmt::format("rank {} did not receive", fmt::join(receivers, ", "));
}

}  // namespace mpt
