// Ranks of a run as threads of one process, for what only exchanges host memory.
#pragma once

#include <functional>

#include "support/thread_ranks.h"
#include "train/rank_group.h"

namespace mpt::test {

class RankThreads {
 public:
  explicit RankThreads(int64_t size) : size_(size) {}

  // Runs `work` for every rank and returns when all have ended; a rank that throws makes the others' calls
  // throw. Throws what the first to fail threw.
  void run(const std::function<void(const RankGroup&)>& work) const {
    run_ranks(size_, [&](Transport& transport) {
      work({.rank = transport.rank(), .size = transport.size(), .gather = [&](auto mine, auto all) {
              transport.gather_host(mine, all);
            }});
    });
  }

 private:
  int64_t size_;
};

}  // namespace mpt::test
