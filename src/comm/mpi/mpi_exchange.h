// Messages between one rank and others that are under way together, and waiting for all of them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

namespace mpt {

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

}  // namespace mpt
