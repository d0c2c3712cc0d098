// Ranks as threads of one process, for code that only exchanges host memory.
#pragma once

#include <functional>
#include <memory>

#include "ranks/communicator.h"
#include "support/forwarding_transport.h"
#include "support/host_memory_device.h"
#include "support/thread_ranks.h"

namespace mpt::test {

class RankThreads {
 public:
  explicit RankThreads(int64_t size) : size_(size) {}

  // Runs `work` for every rank and waits for all. If a rank throws, the calls of the others throw
  // too; rethrows the exception of the first rank to fail.
  void run(const std::function<void(Communicator&)>& work) const {
    run_ranks(size_, [&](Transport& transport) {
      HostMemoryDevice device;
      Communicator ranks(std::make_unique<ForwardingTransport>(transport),
                         device.make_comm_stream(), device);
      work(ranks);
    });
  }

 private:
  int64_t size_;
};

}  // namespace mpt::test
