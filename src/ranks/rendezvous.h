// Rendezvous of ranks without MPI: rank 0 listens on a TCP port, the others connect, and once all
// have arrived they can exchange what they need to find one another: NCCL's id, Gloo's addresses.
//
// No files are involved, so nothing left over from an earlier run can be mistaken for this one. A
// process of another run, connecting or still listening, is detected by the run id.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

struct RendezvousOptions {
  int64_t rank = 0, size = 1;
  std::string address{};  // rank 0's machine: host name or IP address
  int port = 0;
  std::string run_id{};  // the same on all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

class Rendezvous {
 public:
  // Connects the ranks. Throws Error with the reason on all ranks that got this far: ranks missing
  // at the timeout, a duplicate or invalid rank, a mismatched number of ranks, a port already in
  // use, or something else answering there.
  explicit Rendezvous(RendezvousOptions options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Returns what each rank gave, in rank order; at most 1 MiB each. Collective.
  std::vector<std::string> gather(std::string_view mine);

  // Numeric address of this machine that the other ranks reach it by, on the network through which
  // ranks reach rank 0. A loopback address only if all ranks are on one machine.
  [[nodiscard]] const std::string& own_address() const { return own_address_; }

 private:
  class Host;
  class Guest;

  RendezvousOptions options_;
  std::unique_ptr<Host> host_;    // on rank 0
  std::unique_ptr<Guest> guest_;  // on the others
  std::string own_address_ = "127.0.0.1";
};

}  // namespace mpt
