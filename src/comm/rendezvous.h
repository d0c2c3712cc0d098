// How ranks that no MPI brings together begin: rank 0 listens on a TCP port, the others come to it, and when
// all are there it gives each the same bytes (NCCL's id).
//
// Nothing is written to a file, so there is nothing of an earlier run to be mistaken for this one's; a
// process of another run that comes, or that still listens there, is told apart by the run's id.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mpt {

struct RendezvousOptions {
  int64_t rank = 0, size = 1;
  std::string address{};  // of rank 0's machine: a name or a number
  int port = 0;
  std::string run_id{};  // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Rank 0's `bytes` become everyone's. Throws Error on all ranks that got so far, saying why: ranks that did
// not come in time, a rank that came twice or is none of this run's, another number of ranks, a port that is
// taken or where something else answers.
void share_bytes_of_rank_0(std::span<std::byte> bytes, const RendezvousOptions& options);

}  // namespace mpt
