// Rendezvous of ranks without MPI: rank 0 listens on a TCP port, the others connect, and once all
// have arrived rank 0 sends each the same bytes (NCCL's id).
//
// No files are involved, so nothing left over from an earlier run can be mistaken for this one. A
// process of another run, connecting or still listening, is detected by the run id.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

namespace mpt {

struct RendezvousOptions {
  int64_t rank = 0, size = 1;
  std::string address{};  // rank 0's machine: host name or IP address
  int port = 0;
  std::string run_id{};  // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Copies rank 0's `bytes` to all ranks. Throws Error with the reason on all ranks that got this
// far: ranks missing at the timeout, a duplicate or invalid rank, a mismatched number of ranks, a
// port already in use, or something else answering there.
void share_bytes_of_rank_0(std::span<std::byte> bytes, const RendezvousOptions& options);

}  // namespace mpt
