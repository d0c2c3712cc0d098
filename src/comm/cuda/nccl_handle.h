// NCCL's communicator as an object: every call has a deadline, and a failure ends it for good.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <nccl.h>

namespace mpt {

// Never blocks within NCCL (ncclConfig_t::blocking = 0): calls go on in the background and are asked for
// until they are done or the time is up.
class NcclHandle {
 public:
  NcclHandle(int64_t rank, int64_t size, const ncclUniqueId& id, std::chrono::milliseconds timeout);
  // Ends in order where nothing failed, which waits for the other ranks.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // handle.run("ncclAllGather", [&](ncclComm_t comm) { return ncclAllGather(..., comm, stream); });
  // Several calls between ncclGroupStart() and ncclGroupEnd() are one.
  void run(std::string_view call, const std::function<ncclResult_t(ncclComm_t)>& call_nccl);
  // Waits for what was enqueued, as Transport::wait_for_device() says.
  void watch(const std::function<void()>& wait);
  // Ends all that is enqueued, on this rank at once; the others learn of it from their network or by the
  // time.
  void abort(const std::string& cause);

 private:
  ncclResult_t poll(ncclResult_t status, std::string_view call);
  void begin(const ncclUniqueId& id);
  void serve();  // the thread that looks while the host waits
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
};

void check_nccl(ncclResult_t status, std::string_view call);
std::string nccl_version();  // "2.28.9"

}  // namespace mpt
