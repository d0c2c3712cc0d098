// MPI as a process has it: begun once, ended in order or not at all; errors of its calls are exceptions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "comm/transport.h"
#include "core/check.h"

namespace mpt {

// check_mpi(MPI_Barrier(comm), "MPI_Barrier");
void check_mpi(int status, std::string_view call);

class MpiLibrary {
 public:
  MpiLibrary();
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  [[nodiscard]] MPI_Comm ranks() const { return ranks_; }  // all, for our messages alone
  // Ends MPI on this rank. All ranks must be about to do so.
  void finish();

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
};

std::string mpi_library_name();  // "Open MPI 4.1.4"

// Messages between one rank and others that are under way together, and waiting for all of them.

struct MpiExchangeOptions {
  MPI_Comm ranks = MPI_COMM_NULL;
  int tag = 0;  // the same on all ranks, another for the next exchange
  int64_t piece_bytes = 0;
  std::chrono::milliseconds timeout{};
  const std::atomic<bool>* cancelled = nullptr;  // set by another thread: a wait ends
  std::string name{};                            // for messages: "all_gather"
};

class MpiExchange {
 public:
  explicit MpiExchange(MpiExchangeOptions options) : options_(std::move(options)) {}
  // What has not arrived by then is given up.
  ~MpiExchange();
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  // Messages to and from a rank are matched in the order of these calls.
  void send(std::span<const std::byte> bytes, int64_t rank);
  void receive(std::span<std::byte> bytes, int64_t rank);
  // Throws Error where nothing arrives for as long as the timeout, with the ranks that are waited for; where
  // MPI reports an error; and where a message has another size than the receiver expects.
  void wait();

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

  MpiExchangeOptions options_;
  std::vector<Message> messages_;
  std::vector<MPI_Request> requests_;
  size_t open_ = 0;
};

// Ranks that are processes started by an MPI launcher, with tensors in host memory.
//
// A rank sends every other rank what is meant for it, and adds what it received in the order of ranks: the
// bits of threads' sums. Whatever is waited for is asked for again and again until a deadline, so a rank that
// hangs cannot hold the others for ever; what MPI's launcher notices by itself (a rank that was killed) ends
// all processes sooner.

struct MpiOptions {
  int64_t rank = 0, size = 1;  // as the environment says
  // For any of what a call waits for to arrive, since it began or since something else arrived.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  int64_t piece_bytes = int64_t{1} << 30;  // of one message: MPI counts in int
};

// Once in a process, by the thread that also lets the transport go. Its calls come from one thread at a
// time (MPI_THREAD_SERIALIZED). Letting it go ends MPI, for which it waits for the other ranks, except where
// an exception is on its way. Throws Error where MPI has other ranks than the environment says, or is too
// old.
std::unique_ptr<Transport> make_mpi_transport(const MpiOptions& options);

}  // namespace mpt
