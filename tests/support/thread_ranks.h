// Ranks that are threads of one process, for tests: they work in the same host memory, so a sum reads what
// the others gave where it lies.
//
//   run_ranks(3, [](Transport& transport) { ... });
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "comm/transport.h"

namespace mpt {

struct ThreadRanksOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for the others to come to a call
};

class ThreadRanks {
 public:
  explicit ThreadRanks(int64_t ranks, ThreadRanksOptions options = {});
  ~ThreadRanks();

  // Each rank's is made once, and used by one thread at a time; it may outlive this. A rank whose
  // transport goes makes no more calls: those of others that wait for it throw Error. Calls that differ
  // between ranks throw LogicError on all of them.
  [[nodiscard]] std::unique_ptr<Transport> transport(int64_t rank);

 private:
  class Meeting;
  class Rank;
  std::shared_ptr<Meeting> meeting_;
};

// Runs `rank_main` on as many threads, waits for all, and throws what the first rank to fail threw. Its
// message is what the others' calls fail with.
void run_ranks(int64_t ranks, const std::function<void(Transport&)>& rank_main,
               ThreadRanksOptions options = {});

}  // namespace mpt
