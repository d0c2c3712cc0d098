// Moves bytes between the ranks of a run: MPI, NCCL, or nothing if there is one rank.
//
// Every call is collective: all ranks make the same calls in the same order, with views of the same
// shapes.
//
// Calls on tensors are part of a CommStream's work: on a CUDA backend they are enqueued on its
// stream; elsewhere they are complete on return. Calls on host memory are always complete on
// return. If a rank fails, dies, or does not arrive within the timeout, calls on all others throw
// Error with what is known of the cause. Except with NCCL, sums have the same bits with every
// transport.
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

#include "comm/launch_environment.h"
#include "core/enum_names.h"
#include "core/tensor.h"
#include "device/device.h"

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
  // in its own order, and in the type of the parts). `sum` may alias the own part, which may be
  // overwritten in any case.
  virtual void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) = 0;
  // parts: size() contiguous views of any type; the own part is the input, the others are filled.
  virtual void all_gather(std::span<const Tensor> parts) = 0;
  // fp32 [1, n]: element-wise maximum over ranks; NaNs are ignored, as in fmax.
  virtual void all_reduce_max(const Tensor& values) = 0;

  // Host memory. `all` is size() times as long as `mine`, in rank order.
  virtual void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void broadcast_host(std::span<std::byte> bytes, int64_t root) = 0;
  virtual void barrier() = 0;

  // Tensor bytes sent by this rank since construction, for tests and reports.
  [[nodiscard]] virtual int64_t bytes_sent() const = 0;

  // Runs `wait`, in which the host waits for device work that includes calls of this transport.
  // Where calls are only enqueued (NCCL), a lost or late rank is detected here: everything enqueued
  // is aborted, and this throws.
  virtual void wait_for_device(const std::function<void()>& wait) { wait(); }

  // Tells the other ranks why this one is leaving, so that their calls throw. Called once, when
  // this rank fails. May terminate the process if the transport offers no other way.
  virtual void abort(const std::string& cause) noexcept = 0;

 private:
  int64_t rank_, size_;
};

// Single rank: collectives are identities.
std::unique_ptr<Transport> make_single_transport();
// For a dry run: knows rank and size; every call is a LogicError.
std::unique_ptr<Transport> make_planned_transport(int64_t rank, int64_t size);

// Choice of the transport by launcher and by the device of the tensors.

// The transport of tensors between ranks.
enum class TransportKind : uint8_t { kAuto, kMpi, kNccl };
template <>
struct EnumNames<TransportKind> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "mpi", "nccl"};
};

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;  // auto: NCCL for a CUDA device, else MPI
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  StreamRef stream{};  // the communication stream's; must outlive the transport
};

// A single rank gets the single transport, whatever the kind. For a CUDA device, call after the
// device is selected. Throws Error, saying what would work, if the ranks cannot be connected.
std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options);

// Makes NCCL's transport on the selected GPU (comm/cuda/nccl_transport.h); null in a build without
// it.
using NcclMaker = std::unique_ptr<Transport> (*)(const LaunchEnvironment& environment,
                                                 const TransportOptions& options,
                                                 std::unique_ptr<Transport> launched);
NcclMaker& nccl_maker();
struct RegisterNccl {
  explicit RegisterNccl(NcclMaker maker) { nccl_maker() = maker; }
};

// Transports of this build: "MPI, no NCCL".
std::string transports_built();

// Shared by all transports: argument checks, byte counts, reductions.

// Bytes of a view's elements; 0 for an empty view whatever its stride.
inline int64_t packed_bytes(const Tensor& t) { return t.elements() * size_of(t.dtype); }

// Throw LogicError unless the arguments meet Transport's contract.
void check_reduce_scatter(const Transport& of, std::span<const Tensor> parts, const Tensor& sum);
void check_all_gather(const Transport& of, std::span<const Tensor> parts);
void check_all_reduce_max(const Tensor& values);
void check_gather_host(const Transport& of, int64_t mine_bytes, int64_t all_bytes);
void check_root(const Transport& of, int64_t root);

// Bytes that a rank sends. Reduce-scatter: every part to its owner. All-gather and all-reduce: its
// own part or values to every other rank.
int64_t sent_by_reduce_scatter(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_gather(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_reduce_max(const Transport& of, const Tensor& values);

// sum[i] = parts[0][i] + parts[1][i] + ..., added in fp32 from left to right. parts: one per rank,
// [1, n] of one type, fp32 or bf16, in host memory. sum: fp32 [1, n]; may alias one of the parts.
void sum_in_rank_order(std::span<const Tensor> parts, const Tensor& sum);

// largest[i] = fmax over ranks of values[rank][i]; NaN if all are. `largest` may alias one of them.
void max_over_ranks(std::span<const float* const> values, std::span<float> largest);

}  // namespace mpt
