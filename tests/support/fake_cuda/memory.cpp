#include "support/fake_cuda/memory.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fake_cuda::detail {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuardBytes = 256;
constexpr int kGuard = 0xA5;
constexpr int kGarbage = 0xFF;  // NaN in every floating-point type, -1 in integers

// Reports host code that accesses the GPU's memory, before the process dies of it.
void on_fault(int signal, siginfo_t* info, void* /*context*/) {
  if (device_memory().contains(info->si_addr)) {
    constexpr char kMessage[] = "host code touched the GPU's memory\n";
    static_cast<void>(!write(STDERR_FILENO, kMessage, sizeof kMessage - 1));
  }
  std::signal(signal, SIG_DFL);  // the access is repeated, and ends the process
}

void explain_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

Arena::Arena(Access access) : access_(access) {
  void* const memory =
      mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<std::byte*>(memory);
  if (access == Access::kOnDemand) explain_faults();
}

Arena::~Arena() { munmap(begin_, kBytes); }

size_t Arena::span_of(size_t bytes) {
  return (bytes + 2 * kGuardBytes + kPage - 1) / kPage * kPage;
}

std::byte* Arena::allocate(size_t bytes) {
  const size_t span = span_of(bytes);
  size_t start = 0;  // the first gap that is large enough
  for (const auto& [data, size] : blocks_) {
    const auto taken = size_t(data - kGuardBytes - begin_);
    if (taken - start >= span) break;
    start = taken + span_of(size);
  }
  std::byte* const block = begin_ + start;
  used_ = std::max(used_, start + span);
  const Opened opened(*this);
  if (mprotect(block, span, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  memset(block, kGuard, span);
  std::byte* const data = block + kGuardBytes;
  memset(data, kGarbage, bytes);
  blocks_[data] = bytes;
  live_bytes_ += int64_t(bytes);
  return data;
}

bool Arena::free(void* pointer) {
  const auto block = blocks_.find(static_cast<std::byte*>(pointer));
  if (block == blocks_.end()) return false;
  live_bytes_ -= int64_t(block->second);
  mprotect(block->first - kGuardBytes, span_of(block->second), PROT_NONE);
  blocks_.erase(block);
  return true;
}

bool Arena::holds(const void* pointer, size_t bytes) const {
  auto* const data = static_cast<std::byte*>(const_cast<void*>(pointer));
  const auto after = blocks_.upper_bound(data);
  if (after == blocks_.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return size_t(data - start) <= size && bytes <= size - size_t(data - start);
}

std::string Arena::describe(const void* pointer) const {
  auto* const data = static_cast<std::byte*>(const_cast<void*>(pointer));
  const auto after = blocks_.upper_bound(data);
  if (after == blocks_.begin()) return "memory before all allocations";
  const auto& [start, size] = *std::prev(after);
  return fmt::format("byte {} of an allocation of {} bytes", data - start, size);
}

std::optional<std::string> Arena::damage_at(void* pointer) const {
  const auto block = blocks_.find(static_cast<std::byte*>(pointer));
  return block == blocks_.end() ? std::nullopt : damage_of(block->first, block->second);
}

// Checking all of them at every wait would take most of the time of a test that holds thousands.
std::optional<std::string> Arena::damage_of_some() {
  constexpr size_t kMost = 64;
  auto block = blocks_.upper_bound(looked_at_);
  for (size_t i = 0; i < std::min(kMost, blocks_.size()); ++i, ++block) {
    if (block == blocks_.end()) block = blocks_.begin();
    looked_at_ = block->first;
    if (const auto found = damage_of(block->first, block->second)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> Arena::damage_of(const std::byte* data, size_t bytes) {
  const size_t after = std::min(span_of(bytes) - kGuardBytes - bytes, kGuardBytes);
  for (size_t i = 0; i < kGuardBytes; ++i)
    if (data[-1 - ptrdiff_t(i)] != std::byte{kGuard})
      return fmt::format("{} bytes before an allocation of {} bytes were written", i + 1, bytes);
  for (size_t i = 0; i < after; ++i)
    if (data[bytes + i] != std::byte{kGuard})
      return fmt::format("byte {} past an allocation of {} bytes was written", i, bytes);
  return std::nullopt;
}

void Arena::open() {
  if (opened_++ == 0 && access_ == Access::kOnDemand) protect(PROT_READ | PROT_WRITE);
}
void Arena::close() {
  if (--opened_ == 0 && access_ == Access::kOnDemand) protect(PROT_NONE);
}
// Works on adjacent allocations at a time: the memory between allocations stays closed. Workspaces
// stay open: closing their many pages after every kernel would take most of the time.
void Arena::protect(int protection) {
  constexpr size_t kMost = size_t{4} << 20;
  std::byte* start = nullptr;
  size_t span = 0;
  for (const auto& [data, bytes] : blocks_) {
    if (size_t(bytes) > kMost) continue;
    std::byte* const block = data - kGuardBytes;
    if (start != nullptr && start + span != block) {
      mprotect(start, span, protection);
      start = nullptr;
    }
    if (start == nullptr) start = block, span = 0;
    span += span_of(bytes);
  }
  if (start != nullptr) mprotect(start, span, protection);
}

Arena& device_memory() {
  static Arena the(Arena::Access::kOnDemand);
  return the;
}
Arena& pinned_memory() {
  static Arena the(Arena::Access::kAlways);
  return the;
}

Place place_of(const void* pointer) {
  if (device_memory().contains(pointer)) return Place::kDevice;
  return pinned_memory().contains(pointer) ? Place::kPinned : Place::kPageable;
}

bool is_host_address(uint64_t word) {
  constexpr uint64_t kLowest = uint64_t{1} << 32, kHighest = uint64_t{1} << 47;
  if (word < kLowest || word >= kHighest) return false;
  // An enumerator followed by padding that was not cleared because it lies in an array
  // (bytes_of()).
  constexpr uint64_t kMostEnumerators = 16;
  if (word % 256 < kMostEnumerators) return false;
  auto* const pointer = reinterpret_cast<void*>(word);
  if (place_of(pointer) != Place::kPageable) return false;
  return msync(reinterpret_cast<void*>(word / kPage * kPage), kPage, MS_ASYNC) ==
         0;  // it is mapped
}

}  // namespace fake_cuda::detail
