// What carries bytes between the ranks of a run: MPI, NCCL, nothing where there is one.
//
// Every call is collective: all ranks make the same calls in the same order, with views of the same shapes.
//
// Calls on tensors belong to the work of a CommStream, whose stream they are enqueued on where the backend is
// CUDA; elsewhere they have completed when they return. Calls on host memory always have. A rank that fails,
// dies, or does not come within the timeout makes calls of all others throw Error with what is known of the
// cause. Sums of all but NCCL are the same bits whatever the transport.
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

// One rank: collectives are identities.
std::unique_ptr<Transport> make_single_transport();
// Of a plan: rank and size are known, every call is a LogicError.
std::unique_ptr<Transport> make_planned_transport(int64_t rank, int64_t size);

// The transport that fits how a process was started and where its tensors lie.

// What carries tensors between ranks.
enum class TransportKind : uint8_t { kAuto, kMpi, kNccl };
template <>
struct EnumNames<TransportKind> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "mpi", "nccl"};
};

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;  // auto: NCCL for a CUDA device, else MPI
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  StreamRef stream{};  // of the communication stream, which outlives the transport
};

// One rank: the single transport, whatever the kind. For a CUDA device: called when the device is
// selected. Throws Error, saying what would do, where the ranks cannot be brought together.
std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options);

// NCCL's transport on the GPU that is selected, where this program has it (comm/cuda/nccl_transport.h), else
// null.
using NcclMaker = std::unique_ptr<Transport> (*)(const LaunchEnvironment& environment,
                                                 const TransportOptions& options,
                                                 std::unique_ptr<Transport> launched);
NcclMaker& nccl_maker();
struct RegisterNccl {
  explicit RegisterNccl(NcclMaker maker) { nccl_maker() = maker; }
};

// "MPI, no NCCL": what this program was built with.
std::string transports_built();

// What all transports ask of a call's arguments, count as sent, and compute alike.

// Of a view's elements; 0 of an empty one whatever its stride.
inline int64_t packed_bytes(const Tensor& t) { return t.elements() * size_of(t.dtype); }

// Throw LogicError unless the arguments are what Transport says.
void check_reduce_scatter(const Transport& of, std::span<const Tensor> parts, const Tensor& sum);
void check_all_gather(const Transport& of, std::span<const Tensor> parts);
void check_all_reduce_max(const Tensor& values);
void check_gather_host(const Transport& of, int64_t mine_bytes, int64_t all_bytes);
void check_root(const Transport& of, int64_t root);

// Bytes that a rank sends: every part to its owner; the own part, or its values, to every other rank.
int64_t sent_by_reduce_scatter(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_gather(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_reduce_max(const Transport& of, const Tensor& values);

// sum[i] = parts[0][i] + parts[1][i] + ..., each addition in fp32, from left to right. parts: what each rank
// gave, [1, n] of one type, fp32 or bf16, in host memory; sum fp32 [1, n], which may be one of them.
void sum_in_rank_order(std::span<const Tensor> parts, const Tensor& sum);

// largest[i] = fmax over ranks of values[rank][i]; NaN where all are. `largest` may be one of them.
void max_over_ranks(std::span<const float* const> values, std::span<float> largest);

}  // namespace mpt
