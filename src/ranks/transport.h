// Moves bytes between the ranks of a run: MPI, NCCL, or nothing if there is one rank.
//
// Every call is collective: all ranks make the same calls in the same order, with views of the same
// shapes.
//
// Calls on tensors are part of a CommStream's work: on a CUDA backend they are enqueued on its
// stream; elsewhere they are complete on return. Calls on host memory are always complete on
// return. If a rank fails, dies, or does not arrive within the timeout, calls on all others throw
// Error with the known cause. Except with NCCL, sums have the same bits with every transport.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/enum_names.h"
#include "core/tensor.h"
#include "device/device.h"
#include "ranks/launch_environment.h"

namespace mpt {

class Transport {
 public:
  Transport(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] int64_t rank() const { return rank_; }
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] virtual std::string name() const = 0;  // "MPI (Open MPI 4.1.4), 2 ranks"

  // parts: size() contiguous views [1, n_r] of one type, fp32 or bf16; part r goes to rank r.
  // `sum`, fp32 [1, n_rank]: the sum over ranks of part rank(), added in fp32 in rank order (NCCL:
  // in its own order, in the type of the parts). `sum` may alias this rank's part, which may be
  // overwritten in any case.
  virtual void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) = 0;
  // parts: size() contiguous views of any type; this rank's is the input, the others are filled.
  virtual void all_gather(std::span<const Tensor> parts) = 0;
  // fp32 [1, n]: element-wise maximum over ranks; NaNs are ignored, as in fmax.
  virtual void all_reduce_max(const Tensor& values) = 0;

  // Host memory. `all` is size() times as long as `mine`, in rank order.
  virtual void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void broadcast_host(std::span<std::byte> bytes, int64_t root) = 0;
  virtual void barrier() = 0;

  // Tensor bytes sent by this rank since construction, for tests and reports.
  [[nodiscard]] virtual int64_t bytes_sent() const = 0;

  // Runs `wait`, in which the host waits for device work that includes calls of this transport. If
  // calls are only enqueued (NCCL), a lost or late rank is detected here: this aborts everything
  // enqueued and throws.
  virtual void wait_for_device(const std::function<void()>& wait) { wait(); }

  // Tells the other ranks why this one is leaving, so that their calls throw a RelayedError. Called
  // once, when this rank fails. May terminate the process if the transport has no other means.
  virtual void abort(const std::string& cause) noexcept = 0;
  // Whether abort() ends all ranks at once, so that each reports what it knows before.
  [[nodiscard]] virtual bool abort_ends_all() const { return false; }

 private:
  int64_t rank_, size_;
};

// Single rank: collectives are identities.
std::unique_ptr<Transport> make_single_transport();
// For a dry run: knows rank and size; every call is a LogicError.
std::unique_ptr<Transport> make_planned_transport(int64_t rank, int64_t size);

}  // namespace mpt
