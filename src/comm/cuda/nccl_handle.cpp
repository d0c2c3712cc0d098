#include "comm/cuda/nccl_handle.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "core/check.h"
#include "device/cuda/cuda_error.h"

namespace mpt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollEvery = std::chrono::microseconds(20);
constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr auto kEndTime = std::chrono::minutes(1);  // for a GPU to give up calls that were ended

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void check_nccl(ncclResult_t status, std::string_view call) {
  if (status != ncclSuccess) throw error("{} failed: {}", call, ncclGetErrorString(status));
}

std::string nccl_version() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclHandle::NcclHandle(int64_t rank, int64_t size, const ncclUniqueId& id, std::chrono::milliseconds timeout)
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

// Until the call is no longer in progress; what failed is noted, and all that is enqueued is ended.
ncclResult_t NcclHandle::poll(ncclResult_t status, std::string_view call) {
  const auto deadline = Clock::now() + timeout_;
  while (status == ncclInProgress) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return ncclRemoteError;
      if (Clock::now() > deadline) {
        abort_locked(fmt::format("{} was not done within {} s: not all ranks came", call, seconds(timeout_)));
        return ncclRemoteError;
      }
      if (ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
    }
    if (status == ncclInProgress) std::this_thread::sleep_for(kPollEvery);
  }
  const std::lock_guard lock(mutex_);
  if (status != ncclSuccess && failure_.empty())
    abort_locked(
        fmt::format("{} failed: {} ({})", call, ncclGetErrorString(status), ncclGetLastError(comm_)));
  return status;
}

void NcclHandle::run(std::string_view call, const std::function<ncclResult_t(ncclComm_t)>& call_nccl) {
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
  throw_failure_locked();  // the cause of what the wait may have thrown
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
      if (was_ended) {
        spdlog::critical("{}; the GPU does not end what it was given, so the process ends", failure_);
        std::fflush(nullptr);
        std::_Exit(1);
      }
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
    return fmt::format("another rank or the way to it is gone: {} ({})", ncclGetErrorString(status),
                       ncclGetLastError(comm_));
  if (Clock::now() > watched_since_ + timeout_)
    return fmt::format("the GPU was not done within {} s: a rank did not come, or a step takes longer",
                       seconds(timeout_));
  return "";
}

void NcclHandle::abort_locked(const std::string& cause) {
  failure_ = fmt::format("rank {} of {}, NCCL: {}", rank_, size_, cause);
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

void NcclHandle::throw_failure_locked() const {
  if (!failure_.empty()) throw Error(failure_);
}

}  // namespace mpt
