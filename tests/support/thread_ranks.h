// Ranks as threads of one process, for tests. They share host memory, so a sum reads the data of
// other ranks in place.
//
//   run_ranks(3, [](Transport& transport) { ... });
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "ranks/transport.h"

namespace mpt {

struct ThreadRanksOptions {
  std::chrono::milliseconds timeout =
      std::chrono::seconds(60);  // to wait for other ranks in a call
};

class ThreadRanks {
 public:
  explicit ThreadRanks(int64_t ranks, ThreadRanksOptions options = {});
  ~ThreadRanks();

  // The transport of a rank. Create it once per rank and use it from one thread at a time; it may
  // outlive this object. After a transport is destroyed, calls of ranks that wait for it throw
  // Error. Calls that differ between ranks throw LogicError on all of them.
  [[nodiscard]] std::unique_ptr<Transport> transport(int64_t rank);

 private:
  class Meeting;
  class Rank;
  std::shared_ptr<Meeting> meeting_;
};

// Runs `rank_main` on `ranks` threads, waits for all, and rethrows the exception of the first rank
// to fail. Calls of other ranks fail with its message.
void run_ranks(int64_t ranks, const std::function<void(Transport&)>& rank_main,
               ThreadRanksOptions options = {});

}  // namespace mpt
