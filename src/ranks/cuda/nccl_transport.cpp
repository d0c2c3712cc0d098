#include "ranks/cuda/nccl_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "device/cuda/cuda_handles.h"
#include "ranks/make_transport.h"
#include "ranks/rendezvous.h"
#include "ranks/transport.h"
#include "ranks/transport_checks.h"

namespace mpt {
namespace {

void check_nccl(ncclResult_t status, std::string_view call) {
  if (status != ncclSuccess) throw error("{} failed: {}", call, ncclGetErrorString(status));
}

std::string nccl_version() {  // "2.28.9"
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// --- the communicator ----------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

constexpr auto kPollEvery = std::chrono::microseconds(20);
constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr auto kEndTime = std::chrono::minutes(1);  // for a GPU to finish aborted calls

[[noreturn]] void exit_at_once(std::string_view why) {
  spdlog::critical("{}, so this process exits", why);
  std::fflush(nullptr);
  std::_Exit(1);
}

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

// Destroys a communicator on a separate thread: ncclCommAbort() returns only once all graphs
// holding the communicator's calls are gone, and their owners must be told first.
class CommAbort {
 public:
  CommAbort() = default;
  // Ends the process if the GPU or a graph does not release the communicator.
  ~CommAbort() {
    if (ended_.valid() && ended_.wait_for(kEndTime) != std::future_status::ready)
      exit_at_once("NCCL did not abort its communicator");
  }
  CommAbort(const CommAbort&) = delete;
  CommAbort& operator=(const CommAbort&) = delete;

  void begin(ncclComm_t comm) {
    int device = 0;
    cudaGetDevice(&device);
    ended_ = std::async(std::launch::async, [comm, device] {
      cudaSetDevice(device);
      ncclCommAbort(comm);
    });
  }

 private:
  std::future<void> ended_;
};

// Owns NCCL's communicator. Every call has a deadline, and a failure aborts the communicator for
// good. Never blocks within NCCL (ncclConfig_t::blocking = 0): calls proceed in the background and
// are polled until they finish or time out.
class NcclHandle {
 public:
  NcclHandle(int64_t rank, int64_t size, const ncclUniqueId& id, std::chrono::milliseconds timeout);
  // Finalizes, waiting for the other ranks, unless something failed.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // handle.run("ncclAllGather", [&](ncclComm_t comm) { return ncclAllGather(..., comm, stream); });
  // A group between ncclGroupStart() and ncclGroupEnd() counts as one call.
  void run(std::string_view call, const std::function<ncclResult_t(ncclComm_t)>& call_nccl);
  // Runs `wait` under the watcher thread, as specified by Transport::wait_for_device().
  void watch(const std::function<void()>& wait);
  // Aborts everything enqueued, at once on this rank; the others notice by a network error or the
  // timeout.
  void abort(const std::string& cause);

 private:
  ncclResult_t poll(ncclResult_t status, std::string_view call);
  void begin(const ncclUniqueId& id);
  void serve();  // the watcher thread: checks for failures while the host waits
  [[nodiscard]] std::string fault_while_waiting() const;
  void abort_locked(const std::string& cause);
  void throw_failure_locked() const;

  int64_t rank_, size_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ncclComm_t comm_ = nullptr;  // null once aborted
  std::string failure_;
  bool watching_ = false, stopping_ = false;
  std::chrono::steady_clock::time_point watched_since_{};
  std::thread watcher_;
  CommAbort abort_;
};

NcclHandle::NcclHandle(int64_t rank, int64_t size, const ncclUniqueId& id,
                       std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), timeout_(timeout) {
  begin(id);
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  watcher_ = std::thread([this, device] {
    cudaSetDevice(device);
    serve();
  });
}

NcclHandle::~NcclHandle() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  if (comm_ == nullptr) return;
  try {
    run("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
    ncclCommDestroy(comm_);
  } catch (const std::exception& caught) {
    spdlog::error("{}", caught.what());
  }
}

void NcclHandle::begin(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm_, int(size_), id, int(rank_), &config);
  if (begun != ncclSuccess && begun != ncclInProgress) check_nccl(begun, "ncclCommInitRankConfig");
  if (poll(begun, "ncclCommInitRankConfig") == ncclSuccess) return;
  const std::lock_guard lock(mutex_);
  throw_failure_locked();
}

// Polls until the call has finished. On failure, records the cause and aborts everything enqueued.
ncclResult_t NcclHandle::poll(ncclResult_t status, std::string_view call) {
  const auto deadline = Clock::now() + timeout_;
  while (status == ncclInProgress) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return ncclRemoteError;
      if (Clock::now() > deadline) {
        abort_locked(fmt::format("{} did not finish within {} s: not all ranks took part", call,
                                 seconds(timeout_)));
        return ncclRemoteError;
      }
      if (ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
    }
    if (status == ncclInProgress) std::this_thread::sleep_for(kPollEvery);
  }
  const std::lock_guard lock(mutex_);
  if (status != ncclSuccess && failure_.empty())
    abort_locked(fmt::format("{} failed: {} ({})", call, ncclGetErrorString(status),
                             ncclGetLastError(comm_)));
  return status;
}

void NcclHandle::run(std::string_view call,
                     const std::function<ncclResult_t(ncclComm_t)>& call_nccl) {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    throw_failure_locked();
    comm = comm_;
  }
  if (poll(call_nccl(comm), call) == ncclSuccess) return;
  const std::lock_guard lock(mutex_);
  throw_failure_locked();
}

void NcclHandle::watch(const std::function<void()>& wait) {
  {
    const std::lock_guard lock(mutex_);
    throw_failure_locked();
    watching_ = true;
    watched_since_ = Clock::now();
  }
  changed_.notify_all();
  std::exception_ptr fault;
  try {
    wait();
  } catch (...) {
    fault = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  watching_ = false;
  throw_failure_locked();  // the cause of any exception from wait()
  if (fault) std::rethrow_exception(fault);
}

void NcclHandle::abort(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) abort_locked(cause);
}

void NcclHandle::serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!watching_ || !failure_.empty()) {
      const bool was_ended = watching_ && Clock::now() > watched_since_ + timeout_ + kEndTime;
      if (was_ended)
        exit_at_once(fmt::format("{}; the GPU did not abort its pending work", failure_));
      changed_.wait_for(lock, watching_ ? std::chrono::milliseconds(kLookEvery) : timeout_);
      continue;
    }
    const std::string fault = fault_while_waiting();
    if (!fault.empty())
      abort_locked(fault);
    else
      changed_.wait_for(lock, kLookEvery);
  }
}

std::string NcclHandle::fault_while_waiting() const {
  ncclResult_t status = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
  if (status != ncclSuccess && status != ncclInProgress)
    return fmt::format("another rank failed, or the connection to it was lost: {} ({})",
                       ncclGetErrorString(status), ncclGetLastError(comm_));
  if (Clock::now() > watched_since_ + timeout_)
    return fmt::format(
        "the GPU did not finish within {} s: a rank is missing, or a step takes longer",
        seconds(timeout_));
  return "";
}

void NcclHandle::abort_locked(const std::string& cause) {
  failure_ = fmt::format("rank {} of {}, NCCL: {}", rank_, size_, cause);
  if (comm_ != nullptr) abort_.begin(std::exchange(comm_, nullptr));
}

void NcclHandle::throw_failure_locked() const {
  if (!failure_.empty()) throw Error(failure_);
}

// --- the transport -------------------------------------------------------------------------------

ncclDataType_t nccl_type(DType type) { return type == DType::kBF16 ? ncclBfloat16 : ncclFloat32; }

// Whether NCCL's own collectives apply: parts of equal length, adjacent in memory in rank order.
bool side_by_side(std::span<const Tensor> parts) {
  const int64_t bytes = packed_bytes(parts[0]);
  for (size_t rank = 1; rank < parts.size(); ++rank)
    if (packed_bytes(parts[rank]) != bytes || parts[rank].data != parts[rank - 1].data + bytes)
      return false;
  return true;
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const LaunchEnvironment& environment, const ncclUniqueId& id,
                const TransportOptions& options, std::unique_ptr<Transport> launched)
      : Transport(environment.rank, environment.size),
        stream_(stream_of(options.stream)),
        launched_(std::move(launched)),
        nccl_(rank(), size(), id, options.timeout) {}

  [[nodiscard]] std::string name() const override {
    return fmt::format("NCCL {}, {} ranks", nccl_version(), size());
  }

  // bf16 parts are summed in place in this rank's part, then widened into `sum`.
  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    check_reduce_scatter(*this, parts, sum);
    const Tensor& own = parts[size_t(rank())];
    const bool widened = own.dtype == DType::kBF16;
    void* const target = widened ? own.data : sum.data;
    if (side_by_side(parts))
      reduce_scatter(parts, target);
    else
      reduce_each(parts, target);
    if (widened) widen_sums(own, sum, stream_);
    sent_ += sent_by_reduce_scatter(*this, parts);
  }

  void all_gather(std::span<const Tensor> parts) override {
    check_all_gather(*this, parts);
    const auto own_bytes = size_t(packed_bytes(parts[size_t(rank())]));
    if (side_by_side(parts)) {
      if (own_bytes > 0)
        nccl_.run("ncclAllGather", [&](ncclComm_t comm) {
          return ncclAllGather(parts[size_t(rank())].data, parts[0].data, own_bytes, ncclUint8,
                               comm, stream_);
        });
    } else {
      broadcast_each(parts);
    }
    sent_ += sent_by_all_gather(*this, parts);
  }

  void all_reduce_max(const Tensor& values) override {
    check_all_reduce_max(values);
    if (values.elements() > 0)
      nccl_.run("ncclAllReduce", [&](ncclComm_t comm) {
        return ncclAllReduce(values.data, values.data, size_t(values.elements()), ncclFloat32,
                             ncclMax, comm, stream_);
      });
    sent_ += sent_by_all_reduce_max(*this, values);
  }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check_gather_host(*this, int64_t(mine.size()), int64_t(all.size()));
    if (mine.empty()) return;
    std::byte* const memory = staging(all.size());
    std::byte* const own = memory + size_t(rank()) * mine.size();
    copy(own, mine.data(), mine.size(), cudaMemcpyHostToDevice);
    nccl_.run("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(own, memory, mine.size(), ncclUint8, comm, stream_);
    });
    copy(all.data(), memory, all.size(), cudaMemcpyDeviceToHost);
  }
  void broadcast_host(std::span<std::byte> bytes, int64_t root) override {
    check_root(*this, root);
    if (bytes.empty()) return;
    std::byte* const memory = staging(bytes.size());
    if (rank() == root) copy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    nccl_.run("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(memory, memory, bytes.size(), ncclUint8, int(root), comm, stream_);
    });
    copy(bytes.data(), memory, bytes.size(), cudaMemcpyDeviceToHost);
  }
  void barrier() override {
    const auto mine = std::byte(1);
    std::vector<std::byte> all(static_cast<size_t>(size()));
    gather_host({&mine, 1}, all);
  }
  void wait_for_device(const std::function<void()>& wait) override { nccl_.watch(wait); }

  [[nodiscard]] int64_t bytes_sent() const override { return sent_; }

  // Under MPI, the launched transport ends the other processes here; other launchers do so when
  // this process exits with an error.
  void abort(const std::string& cause) noexcept override {
    nccl_.abort(cause);
    if (launched_) launched_->abort(cause);
  }

 private:
  using Memory = Owned<void*, cudaFree>;

  void reduce_scatter(std::span<const Tensor> parts, void* target) {
    const auto count = size_t(parts[0].elements());
    if (count == 0) return;
    nccl_.run("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(parts[0].data, target, count, nccl_type(parts[0].dtype), ncclSum,
                               comm, stream_);
    });
  }
  void reduce_each(std::span<const Tensor> parts, void* target) {
    for_each_in_group("ncclReduce", parts, [&](const Tensor& part, int root, ncclComm_t comm) {
      return ncclReduce(part.data, root == int(rank()) ? target : nullptr, size_t(part.elements()),
                        nccl_type(part.dtype), ncclSum, root, comm, stream_);
    });
  }
  void broadcast_each(std::span<const Tensor> parts) {
    for_each_in_group("ncclBroadcast", parts, [&](const Tensor& part, int root, ncclComm_t comm) {
      return ncclBroadcast(part.data, part.data, size_t(packed_bytes(part)), ncclUint8, root, comm,
                           stream_);
    });
  }
  // Runs call(part, its rank, comm) for every nonempty part, as one NCCL group.
  template <class F>
  void for_each_in_group(std::string_view name, std::span<const Tensor> parts, const F& call) {
    nccl_.run(name, [&](ncclComm_t comm) {
      ncclResult_t status = ncclGroupStart();
      for (size_t rank = 0; rank < parts.size() && started(status); ++rank)
        if (parts[rank].elements() > 0) status = call(parts[rank], int(rank), comm);
      const ncclResult_t ended = ncclGroupEnd();
      return started(status) ? ended : status;
    });
  }
  static bool started(ncclResult_t status) {
    return status == ncclSuccess || status == ncclInProgress;
  }

  // GPU memory owned by this object; reallocated to grow.
  std::byte* staging(size_t bytes) {
    if (staging_bytes_ < bytes) {
      synchronize();
      staging_.reset();
      void* memory = nullptr;
      check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
      staging_.reset(memory);
      staging_bytes_ = bytes;
    }
    return static_cast<std::byte*>(staging_.get());
  }
  // Complete on return.
  void copy(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind) {
    nccl_.watch(
        [&] { check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync"); });
    synchronize();
  }
  void synchronize() {
    nccl_.watch([&] { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); });
  }

  cudaStream_t stream_;
  std::unique_ptr<Transport> launched_;  // MPI's, if it launched the ranks
  NcclHandle nccl_;
  int64_t sent_ = 0;
  Memory staging_;
  size_t staging_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const LaunchEnvironment& environment,
                                               const TransportOptions& options,
                                               std::unique_ptr<Transport> launched) {
  check(stream_of(options.stream) != nullptr, "NCCL needs a communication stream");
  // In-switch sums (NVLS) vary between calls. Buffers registered for captured steps can hang rings
  // between machines (NCCL issue 2389, in 2.24 to 2.31). User settings take precedence.
  setenv("NCCL_ALGO", "^NVLS,NVLSTree", /*overwrite=*/0);
  setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  ncclUniqueId id{};
  if (environment.rank == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (launched) {
    launched->broadcast_host(std::as_writable_bytes(std::span(&id, 1)), 0);
  } else {
    Rendezvous rendezvous(rendezvous_options(environment, options.timeout));
    const std::string of_rank_0 = rendezvous.gather({id.internal, sizeof id.internal}).front();
    check(of_rank_0.size() == sizeof id.internal, "an id of {} bytes", of_rank_0.size());
    std::copy(of_rank_0.begin(), of_rank_0.end(), id.internal);
  }
  return std::make_unique<NcclTransport>(environment, id, options, std::move(launched));
}

namespace {
const RegisterNccl registered{make_nccl_transport};
}  // namespace

}  // namespace mpt
