// What carries bytes between the ranks of a run: MPI, NCCL, nothing where there is one.
//
// Every call is collective: all ranks make the same calls in the same order, with views of the same shapes.
//
// Calls on tensors belong to the work of a CommStream, whose stream they are enqueued on where the backend is
// CUDA; elsewhere they have completed when they return. Calls on host memory always have. A rank that fails,
// dies, or does not come within the timeout makes calls of all others throw Error with what is known of the
// cause. Sums of all but NCCL are the same bits whatever the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/tensor.h"

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

  // parts: size() contiguous views [1, n_r] of one type, fp32 or bf16; part r is for rank r. `sum`, fp32
  // [1, n_rank]: what all ranks gave as part rank(), added in fp32 in the order of ranks (NCCL: in its own
  // order, and in the type of the parts). `sum` may be the own part, which may be overwritten in any case.
  virtual void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) = 0;
  // parts: size() contiguous views of any type; the own is given, the others are filled.
  virtual void all_gather(std::span<const Tensor> parts) = 0;
  // fp32 [1, n]: element-wise over ranks; NaN is ignored as fmax does.
  virtual void all_reduce_max(const Tensor& values) = 0;

  // Host memory. `all` has size() times the bytes of `mine`, in the order of ranks.
  virtual void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void broadcast_host(std::span<std::byte> bytes, int64_t root) = 0;
  virtual void barrier() = 0;

  // Bytes of tensors that this rank has sent since it was made, for tests and reports.
  [[nodiscard]] virtual int64_t bytes_sent() const = 0;

  // Runs `wait`, in which the host waits for device work that holds calls of this. Where calls are only
  // enqueued (NCCL), a rank that is gone or does not come within the timeout shows here: all that is enqueued
  // is ended, and this throws.
  virtual void wait_for_device(const std::function<void()>& wait) { wait(); }

  // Tells the other ranks why this one ends, so that their calls throw. Called once, when this rank leaves on
  // an error; may end the process where the transport leaves no other way.
  virtual void abort(const std::string& cause) noexcept = 0;

 private:
  int64_t rank_, size_;
};

// Rank 0 of 1: gathers and sums are what is there.
std::unique_ptr<Transport> make_single_transport();
// Of a plan: rank and size are known, every call is a LogicError.
std::unique_ptr<Transport> make_planned_transport(int64_t rank, int64_t size);

}  // namespace mpt
