#include "support/fake_cuda/block_scheduler.h"

#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <fmt/format.h>

#include "support/fake_cuda/race_detector.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace fake_cuda::detail {
namespace {

namespace context = boost::context;

constexpr int kLanes = 32;
constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kGuardBytes = 128;
constexpr std::byte kGarbage{0xFF};  // NaN in every floating-point type, -1 in integers
constexpr std::byte kGuard{0xA5};

// Whether this host thread runs a thread of a kernel whose accesses are watched.
thread_local bool observes = false;

struct Thread;

struct Worker {
  context::fiber fiber;  // to resume it; empty while it runs
  context::fiber main;   // caller of the fiber, while it runs
  Thread* thread = nullptr;
};

enum class State : uint8_t { kUnstarted, kRunning, kWaiting, kReady, kDone };

struct Thread {
  uint3 index{};
  int number = 0;  // within the block
  State state = State::kUnstarted;
  Meeting meeting{};
  uint64_t result = 0;
  Worker* worker = nullptr;

  [[nodiscard]] int lane() const { return number % kLanes; }
  [[nodiscard]] unsigned bit() const { return 1u << unsigned(lane()); }
};

const char* name_of(const Meeting& meeting) {
  switch (meeting.kind) {
    case Collective::kSyncBlock:
      return "__syncthreads";
    case Collective::kSyncWarp:
      return "__syncwarp";
    case Collective::kShuffle:
      return "a shuffle";
    case Collective::kVote:
      return "a vote";
    case Collective::kReduce:
      return "a reduction";
    case Collective::kNone:
      break;
  }
  return "nothing";
}

class Scheduler {
 public:
  std::optional<std::string> run(const Launch& launch, Direction direction) {
    launch_ = &launch;
    direction_ = direction;
    fault_.reset();
    blockDim = launch.block;
    gridDim = launch.grid;
    const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
    shared_.resize(launch.shared_bytes + 2 * kGuardBytes + 256);
    races_.begin_launch(shared_start(), launch.shared_bytes);
    for (uint64_t i = 0; i < blocks && !fault_; ++i) {
      const uint64_t b = direction == Direction::kForward ? i : blocks - 1 - i;
      block_ = uint32_t(b);
      blockIdx = index_of_block(block_);
      run_block();
    }
    launch_ = nullptr;
    return fault_;
  }

  uint64_t meet(const Meeting& meeting) {
    Thread& self = running();
    if (meeting.kind != Collective::kSyncBlock && (meeting.mask & self.bit()) == 0)
      fail(fmt::format("{} calls {} with mask {:#010x}, in which it is not", name_of(self),
                       name_of(meeting), meeting.mask));
    self.meeting = meeting;
    self.state = State::kWaiting;
    const bool complete =
        meeting.kind == Collective::kSyncBlock ? meet_block(self) : meet_warp(self);
    if (!complete) leave(self);
    return self.result;
  }

  Thread& running() {
    if (running_ == nullptr) throw std::logic_error("device code is called by the host");
    return *running_;
  }
  void* shared_memory() { return shared_start(); }
  void watch(Races races) { watches_ = races == Races::kReported; }
  // The thread continues: the fault ends the kernel when the thread next waits or ends.
  void note_access(const void* address, size_t bytes, Access kind) {
    if (fault_ || running_ == nullptr) return;
    const Thread& self = *running_;
    const auto race = races_.access(self.number, address, bytes, kind);
    if (!race) return;
    fault_ =
        fmt::format("{} {} {}, which {} {} with no barrier between them", name_of(self), race->does,
                    race->where,
                    name_of(threads_[size_t(race->other)], index_of_block(race->block)), race->did);
  }

  [[noreturn]] void fail(std::string why) {
    fault_ = std::move(why);
    leave(running());
    std::terminate();  // a failed thread is never resumed
  }

 private:
  static std::string name_of(const Thread& t, const uint3& block = blockIdx) {
    return fmt::format("thread ({},{},{}) of block ({},{},{})", t.index.x, t.index.y, t.index.z,
                       block.x, block.y, block.z);
  }
  [[nodiscard]] uint3 index_of_block(uint32_t block) const {
    const dim3 grid = launch_->grid;
    const uint32_t layer = block / grid.x;
    return {block % grid.x, layer % grid.y, layer / grid.y};
  }
  static const char* name_of(const Meeting& meeting) { return detail::name_of(meeting); }

  void run_block() {
    start_threads();
    fill_shared();
    while (!fault_) {
      if (!ready_.empty()) {
        Thread& next = *ready_.front();
        ready_.pop_front();
        next.state = State::kRunning;
        go_on(*next.worker);
      } else if (started_ < int(threads_.size())) {
        go_on(idle_worker());
      } else {
        break;
      }
    }
    if (!fault_ && done_ < int(threads_.size())) fault_ = describe_stall();
    if (!fault_) check_shared();
    running_ = nullptr;
    if (fault_) drop_workers();
  }

  void start_threads() {
    const dim3 size = launch_->block;
    threads_.resize(size_t(size.x) * size.y * size.z);
    int number = 0;
    for (unsigned z = 0; z < size.z; ++z)
      for (unsigned y = 0; y < size.y; ++y)
        for (unsigned x = 0; x < size.x; ++x, ++number)
          threads_[size_t(number)] = {.index = {x, y, z}, .number = number};
    races_.begin_block(block_, number);
    ready_.clear();
    started_ = done_ = waiting_for_block_ = 0;
  }

  // --- workers: each runs threads in turn until one must wait, and is then tied to that one ------
  Worker& idle_worker() {
    if (idle_.empty()) {
      workers_.push_back(std::make_unique<Worker>());
      Worker& worker = *workers_.back();
      worker.fiber = context::fiber(
          std::allocator_arg, context::protected_fixedsize_stack(kStackBytes),
          [this, &worker](context::fiber&& main) { return work(worker, std::move(main)); });
      return worker;
    }
    Worker& worker = *idle_.back();
    idle_.pop_back();
    return worker;
  }

  context::fiber work(Worker& worker, context::fiber&& main) {
    worker.main = std::move(main);
    for (;;) {
      while (started_ < int(threads_.size()) && !fault_) run_thread(worker, next_thread());
      worker.thread = nullptr;
      idle_.push_back(&worker);
      worker.main = std::move(worker.main).resume();
    }
  }

  Thread& next_thread() {
    const int last = int(threads_.size()) - 1;
    const int number = direction_ == Direction::kForward ? started_ : last - started_;
    ++started_;
    return threads_[size_t(number)];
  }

  void run_thread(Worker& worker, Thread& thread) {
    worker.thread = &thread;
    thread.worker = &worker;
    thread.state = State::kRunning;
    running_ = &thread;
    threadIdx = thread.index;
    try {
      launch_->kernel.thread();
    } catch (const std::exception& e) {
      fault_ = fmt::format("{} threw: {}", name_of(thread), e.what());
    }
    finish(thread);
  }

  void finish(Thread& thread) {
    thread.state = State::kDone;
    ++done_;
    if (fault_) return;
    if (waiting_for_block_ > 0) {
      fault_ = fmt::format("{} has ended while others wait in __syncthreads", name_of(thread));
      return;
    }
    const int first = thread.number - thread.lane();
    for (int lane = 0; lane < kLanes && first + lane < int(threads_.size()); ++lane) {
      const Thread& other = threads_[size_t(first + lane)];
      if (other.state == State::kWaiting && (other.meeting.mask & thread.bit()) != 0)
        fault_ =
            fmt::format("{} waits in {} with mask {:#010x} for {}, which has ended", name_of(other),
                        name_of(other.meeting), other.meeting.mask, name_of(thread));
    }
  }

  void go_on(Worker& worker) {
    running_ = worker.thread;
    if (running_ != nullptr) threadIdx = running_->index;
    observes = watches_;
    worker.fiber = std::move(worker.fiber).resume();
    observes = false;
  }
  void leave(Thread& thread) {
    Worker& worker = *thread.worker;
    worker.main = std::move(worker.main).resume();
  }

  // Call after a fault: unwinds the stacks of waiting threads; new workers are made when needed.
  void drop_workers() {
    idle_.clear();
    workers_.clear();
  }

  // --- meetings ----------------------------------------------------------------------------------
  void wake(Thread& thread, const Thread& self) {
    thread.state = &thread == &self ? State::kRunning : State::kReady;
    if (&thread != &self) ready_.push_back(&thread);
  }

  bool meet_block(Thread& self) {
    if (done_ > 0)
      fail(
          fmt::format("{} waits in __syncthreads, but {} others have ended", name_of(self), done_));
    if (++waiting_for_block_ < int(threads_.size())) return false;
    waiting_for_block_ = 0;
    races_.sync_block();
    uint64_t result = threads_[0].meeting.value;
    for (size_t i = 1; i < threads_.size() && self.meeting.fold != nullptr; ++i)
      result = self.meeting.fold(result, threads_[i].meeting.value);
    for (Thread& thread : threads_) {
      thread.result = result;
      wake(thread, self);
    }
    return true;
  }

  bool meet_warp(Thread& self) {
    const int first = self.number - self.lane();
    const unsigned mask = self.meeting.mask;
    bool all = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((mask >> unsigned(lane) & 1u) == 0) continue;
      if (first + lane >= int(threads_.size()))
        fail(fmt::format("{} calls {} with mask {:#010x}, but its warp has only {} threads",
                         name_of(self), name_of(self.meeting), mask, int(threads_.size()) - first));
      const Thread& other = threads_[size_t(first + lane)];
      if (other.state == State::kDone)
        fail(fmt::format("{} waits in {} with mask {:#010x} for {}, which has ended", name_of(self),
                         name_of(self.meeting), mask, name_of(other)));
      all = all && other.state == State::kWaiting && other.meeting.kind == self.meeting.kind &&
            other.meeting.mask == mask;
    }
    if (all) finish_meeting(self, first);
    return all;
  }

  void finish_meeting(Thread& self, int first) {
    const Meeting meeting = self.meeting;
    if (meeting.kind == Collective::kSyncWarp)
      races_.sync_warp(first, meeting.mask);
    else
      races_.exchange(first, meeting.mask);
    uint64_t together = 0;
    bool begun = false;
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((meeting.mask >> unsigned(lane) & 1u) == 0) continue;
      const Thread& other = threads_[size_t(first + lane)];
      if (meeting.kind == Collective::kVote) together |= other.meeting.value << unsigned(lane);
      if (meeting.kind == Collective::kReduce)
        together = begun ? meeting.fold(together, other.meeting.value) : other.meeting.value;
      begun = true;
    }
    uint64_t values[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
      if ((meeting.mask >> unsigned(lane) & 1u) != 0)
        values[lane] = threads_[size_t(first + lane)].meeting.value;
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((meeting.mask >> unsigned(lane) & 1u) == 0) continue;
      Thread& other = threads_[size_t(first + lane)];
      other.result = together;
      if (meeting.kind == Collective::kShuffle) {
        const int source = other.meeting.source_lane;
        if (source < 0 || source >= kLanes || (meeting.mask >> unsigned(source) & 1u) == 0)
          fail(fmt::format("{} shuffles with mask {:#010x} from lane {}, which is not in it",
                           name_of(other), meeting.mask, source));
        other.result = values[source];
      }
      wake(other, self);
    }
  }

  std::string describe_stall() {
    for (const Thread& thread : threads_) {
      if (thread.state != State::kWaiting) continue;
      for (const Thread& other : threads_) {
        const bool expected = thread.meeting.kind == Collective::kSyncBlock ||
                              (other.number / kLanes == thread.number / kLanes &&
                               (thread.meeting.mask & other.bit()) != 0);
        if (!expected || other.state != State::kWaiting) continue;
        if (other.meeting.kind == thread.meeting.kind && other.meeting.mask == thread.meeting.mask)
          continue;
        return fmt::format(
            "{} waits in {} with mask {:#010x}, but {} waits in {} with mask {:#010x}",
            name_of(thread), name_of(thread.meeting), thread.meeting.mask, name_of(other),
            name_of(other.meeting), other.meeting.mask);
      }
    }
    return "threads wait for one another";
  }

  // --- dynamic shared memory: at a multiple of 16 bytes and no more, between guards --------------
  std::byte* shared_start() {
    auto address = reinterpret_cast<uintptr_t>(shared_.data() + kGuardBytes);
    address = (address + 127) / 128 * 128 + 16;
    return reinterpret_cast<std::byte*>(address);
  }
  void fill_shared() {
    shared_.assign(launch_->shared_bytes + 2 * kGuardBytes + 256, kGuard);
    std::fill_n(shared_start(), launch_->shared_bytes, kGarbage);
  }
  void check_shared() {
    const std::byte* const start = shared_start();
    for (size_t i = 0; i < kGuardBytes; ++i)
      if (start[-1 - ptrdiff_t(i)] != kGuard || start[launch_->shared_bytes + i] != kGuard) {
        fault_ = fmt::format("block ({},{},{}) wrote outside its {} bytes of dynamic shared memory",
                             blockIdx.x, blockIdx.y, blockIdx.z, launch_->shared_bytes);
        return;
      }
  }

  const Launch* launch_ = nullptr;
  Direction direction_ = Direction::kForward;
  std::optional<std::string> fault_;
  std::vector<Thread> threads_;
  std::deque<Thread*> ready_;
  int started_ = 0, done_ = 0, waiting_for_block_ = 0;
  Thread* running_ = nullptr;
  uint32_t block_ = 0;  // counted through the grid
  RaceDetector races_;
  bool watches_ = true;
  std::vector<std::byte> shared_;
  std::vector<Worker*> idle_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

Scheduler& scheduler() {
  static Scheduler the;
  return the;
}

}  // namespace

std::optional<std::string> run_grid(const Launch& launch, Direction direction) {
  return scheduler().run(launch, direction);
}
uint64_t meet(const Meeting& meeting) { return scheduler().meet(meeting); }
int lane_of_this_thread() { return scheduler().running().lane(); }
void* dynamic_shared_memory() {
  static_cast<void>(scheduler().running());
  return scheduler().shared_memory();
}
void trap(const char* why) { scheduler().fail(why); }
void watch_races(Races races) { scheduler().watch(races); }
void note_access(const void* address, size_t bytes, Access kind) {
  if (observes) scheduler().note_access(address, bytes, kind);
}

}  // namespace fake_cuda::detail
