#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "core/bf16.h"
#include "support/fake_cuda/fake_nccl.h"
#include "support/fake_cuda/memory.h"
#include "support/fake_cuda/runtime.h"

using fake_cuda::detail::enqueue_item;
using fake_cuda::detail::Mark;
using mpt::bf16;
using mpt::rounded_to;
using mpt::to_float;

namespace {

enum class Kind : uint8_t { kReduceScatter, kReduce, kAllReduce, kAllGather, kBroadcast };

// Arguments that all ranks must agree on, and those of each rank.
struct Call {
  std::string name;
  Kind kind;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  const std::byte* send;
  std::byte* receive;

  [[nodiscard]] bool agrees(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

struct Meeting {
  explicit Meeting(size_t ranks) : calls(ranks), arrived(ranks) {}
  std::vector<std::optional<Call>> calls;
  std::vector<std::shared_ptr<Mark>> arrived;
  std::vector<std::shared_ptr<void>> recorded;  // ncclComm::recorded of the captured ones
  std::shared_ptr<Mark> done = std::make_shared<Mark>();
};

struct World {
  int ranks = 0;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings;
};

size_t bytes_of(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : 4;
}

float value(const std::byte* data, size_t i, ncclDataType_t type) {
  if (type == ncclBfloat16) return to_float(reinterpret_cast<const bf16*>(data)[i]);
  return reinterpret_cast<const float*>(data)[i];
}

// The reduction of element i over all ranks, with each result rounded to the type.
void reduce(const Meeting& meeting, size_t i, std::byte* result) {
  const Call& call = *meeting.calls[0];
  float sum = value(call.send, i, call.type);
  for (size_t rank = 1; rank < meeting.calls.size(); ++rank) {
    const float x = value(meeting.calls[rank]->send, i, call.type);
    sum = call.op == ncclMax ? std::fmax(sum, x) : sum + x;
    if (call.type == ncclBfloat16) sum = rounded_to<bf16>(sum);
  }
  if (call.type == ncclBfloat16)
    *reinterpret_cast<bf16*>(result) = mpt::bf16_nearest(sum);
  else
    *reinterpret_cast<float*>(result) = sum;
}

// The data that a rank receives; empty unless it is the root.
std::vector<std::byte> received(const Meeting& meeting, size_t rank) {
  const Call& call = *meeting.calls[rank];
  const size_t size = bytes_of(call.type), ranks = meeting.calls.size();
  std::vector<std::byte> result;
  const auto append = [&](const std::byte* from) {
    result.insert(result.end(), from, from + call.count * size);
  };
  if (call.kind == Kind::kBroadcast) append(meeting.calls[size_t(call.root)]->send);
  if (call.kind == Kind::kAllGather)
    for (size_t from = 0; from < ranks; ++from) append(meeting.calls[from]->send);
  const bool reduces = call.kind == Kind::kReduceScatter || call.kind == Kind::kAllReduce ||
                       (call.kind == Kind::kReduce && call.root == int(rank));
  if (!reduces) return result;
  result.resize(call.count * size);
  const size_t first = call.kind == Kind::kReduceScatter ? rank * call.count : 0;
  for (size_t i = 0; i < call.count; ++i) reduce(meeting, first + i, result.data() + i * size);
  return result;
}

// Reads everything before writing, because operations may be in place.
std::optional<std::string> carry_out(const Meeting& meeting) {
  std::vector<std::vector<std::byte>> results;
  for (size_t rank = 0; rank < meeting.calls.size(); ++rank)
    results.push_back(received(meeting, rank));
  for (size_t rank = 0; rank < results.size(); ++rank)
    std::copy(results[rank].begin(), results[rank].end(), meeting.calls[rank]->receive);
  return std::nullopt;
}

struct State {
  std::mutex mutex;  // ranks may begin in several threads
  int ids = 0;
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::vector<std::string> calls;
  std::atomic<int64_t> aborted{0};
  std::atomic<ncclResult_t> async_error{ncclSuccess};
};
State& state() {
  static State the;
  return the;
}
thread_local int group_depth = 0;

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank;
  int64_t calls = 0;
  std::shared_ptr<void> recorded = std::make_shared<char>();  // shared by graphs with its calls
};

namespace {

bool on_gpu(const void* pointer) {
  return fake_cuda::detail::place_of(pointer) == fake_cuda::detail::Place::kDevice;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status == cudaStreamCaptureStatusActive;
}

ncclResult_t give(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  const bool receives = call.kind != Kind::kReduce || call.root == comm->rank;
  if (call.count == 0 || !on_gpu(call.send) || (receives && !on_gpu(call.receive)))
    return ncclInvalidArgument;
  const auto ranks = size_t(comm->world->ranks);
  std::shared_ptr<Meeting>& meeting = comm->world->meetings[comm->calls++];
  if (!meeting) {
    meeting = std::make_shared<Meeting>(ranks);
    state().calls.push_back(call.name);
  }
  for (const auto& other : meeting->calls)
    if (other && !other->agrees(call)) return ncclInvalidUsage;
  meeting->calls[size_t(comm->rank)] = call;
  if (is_captured(stream)) meeting->recorded.push_back(comm->recorded);
  auto& arrived = meeting->arrived[size_t(comm->rank)];
  arrived = std::make_shared<Mark>();
  enqueue_item({.stream = stream, .reaches = arrived});
  const bool all = std::all_of(meeting->arrived.begin(), meeting->arrived.end(),
                               [](const auto& m) { return m; });
  if (all) {
    for (const auto& mark : meeting->arrived) enqueue_item({.stream = stream, .after = mark});
    enqueue_item(
        {.stream = stream,
         .work = [m = meeting, recorded = std::move(meeting->recorded)] { return carry_out(*m); },
         .reaches = meeting->done});
  }
  enqueue_item({.stream = stream, .after = meeting->done});
  return ncclSuccess;
}

Call call_of(const char* name, Kind kind, const void* send, void* receive) {
  return {.name = name,
          .kind = kind,
          .count = 0,
          .type = ncclUint8,
          .op = ncclSum,
          .root = 0,
          .send = static_cast<const std::byte*>(send),
          .receive = static_cast<std::byte*>(receive)};
}

}  // namespace

namespace fake_nccl {

std::vector<std::string> calls() { return state().calls; }
int64_t aborted() { return state().aborted; }
void set_async_error(ncclResult_t error) { state().async_error = error; }
void reset() {
  state().calls.clear();
  state().aborted = 0;
  state().async_error = ncclSuccess;
}

}  // namespace fake_nccl

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(state().mutex);
  const std::string text = fmt::format("world {}", ++state().ids);
  std::copy_n(text.c_str(), text.size() + 1, id->internal);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return "no more is known"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  const std::lock_guard lock(state().mutex);
  std::shared_ptr<World>& world = state().worlds[id.internal];
  if (!world) world = std::make_shared<World>(World{.ranks = ranks, .meetings = {}});
  if (world->ranks != ranks) return ncclInvalidUsage;
  *comm = new ncclComm{world, rank};
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* error) {
  *error = state().async_error;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
// Returns when no graph holds a call of the communicator, as NCCL's does (commDestroySync).
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ++state().aborted;
  while (comm->recorded.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
// Like a group that continues in the background.
ncclResult_t ncclGroupEnd() { return --group_depth < 0 ? ncclInvalidUsage : ncclInProgress; }

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  Call call = call_of("ncclReduceScatter", Kind::kReduceScatter, send, receive);
  call.count = receive_count, call.type = type, call.op = op;
  return give(comm, call, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call = call_of("ncclReduce", Kind::kReduce, send, receive);
  call.count = count, call.type = type, call.op = op, call.root = root;
  return give(comm, call, stream);
}
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  Call call = call_of("ncclAllReduce", Kind::kAllReduce, send, receive);
  call.count = count, call.type = type, call.op = op;
  return give(comm, call, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  Call call = call_of("ncclAllGather", Kind::kAllGather, send, receive);
  call.count = send_count, call.type = type;
  return give(comm, call, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  Call call = call_of("ncclBroadcast", Kind::kBroadcast, send, receive);
  call.count = count, call.type = type, call.root = root;
  return give(comm, call, stream);
}
