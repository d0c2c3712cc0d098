#include "support/fake_cuda/race_detector.h"

#include <algorithm>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "support/fake_cuda/memory.h"

// Bounds of the program's static data, which contains kernels' static shared memory; defined by the
// linker.
extern "C" {
extern std::byte __data_start[];  // NOLINT
extern std::byte _end[];          // NOLINT
}

namespace fake_cuda::detail {
namespace {

template <class T>
bool lies_in(const T& object, const void* address) {
  return address >= &object && address < &object + 1;
}
// Variables of the emulation that every kernel reads.
bool is_an_index(const void* address) {
  return lies_in(threadIdx, address) || lies_in(blockIdx, address) || lies_in(blockDim, address) ||
         lies_in(gridDim, address);
}

}  // namespace

RaceDetector::RaceDetector() {
  regions_[0] = {.begin = device_memory().begin(), .end = device_memory().end()};
  regions_[1] = {.begin = pinned_memory().begin(), .end = pinned_memory().end()};
  regions_[2] = {.kind = Kind::kDynamicShared};
  regions_[3] = {.begin = __data_start, .end = _end, .kind = Kind::kStatic};
}

void RaceDetector::begin_launch(const std::byte* shared, size_t shared_bytes) {
  ++launch_;
  regions_[2].begin = shared, regions_[2].end = shared + shared_bytes;
  latest_ = nullptr;
}

void RaceDetector::begin_block(uint32_t block, int threads) {
  block_ = block;
  lanes_.assign(size_t(threads), Lane{});
}

void RaceDetector::sync_block() {
  for (Lane& lane : lanes_) lane.past_block = ++lane.clock;
}

// Joins the clocks of the mask's lanes: what any of them is ordered after, and its own accesses,
// now precede them all.
void RaceDetector::join(int first, unsigned mask, Lane::Clocks Lane::*clocks) {
  Lane::Clocks joined{};
  const auto each_lane = [&](const auto& visit) {
    for (size_t i = 0; i < kLanes; ++i)
      if ((mask >> i & 1u) != 0) visit(i, lanes_[size_t(first) + i]);
  };
  each_lane([&](size_t, const Lane& lane) {
    for (size_t i = 0; i < kLanes; ++i) joined[i] = std::max(joined[i], (lane.*clocks)[i]);
  });
  each_lane([&](size_t i, const Lane& lane) { joined[i] = lane.clock; });
  each_lane([&](size_t, Lane& lane) { lane.*clocks = joined; });
}

void RaceDetector::exchange(int first, unsigned mask) {
  for (int i = 0; i < kLanes; ++i)
    if ((mask >> unsigned(i) & 1u) != 0) ++lanes_[size_t(first + i)].clock;
  join(first, mask, &Lane::past_reads);
}
void RaceDetector::sync_warp(int first, unsigned mask) {
  exchange(first, mask);
  join(first, mask, &Lane::past);
}

RaceDetector::Region* RaceDetector::region_of(const std::byte* address) {
  if (latest_ != nullptr && latest_->contains(address)) return latest_;
  for (Region& region : regions_)
    if (region.contains(address)) return latest_ = &region;
  return nullptr;
}

RaceDetector::Page& RaceDetector::page_at(Region& region, size_t number) {
  if (number >= region.pages.size()) region.pages.resize(number + number / 2 + 1);
  std::unique_ptr<Page>& page = region.pages[number];
  if (page == nullptr) page = std::make_unique<Page>();
  if (page->launch != launch_) {
    page->launch = launch_;
    page->cells.fill({});
  }
  return *page;
}

bool RaceDetector::is_ordered(const Record& earlier, int thread, Kind kind,
                              Lane::Clocks Lane::*past) const {
  if (earlier.clock == 0) return true;
  if (earlier.block != block_) return kind != Kind::kGlobal;  // shared memory starts afresh
  if (earlier.thread == thread) return true;
  if (earlier.clock < lanes_[earlier.thread].past_block) return true;
  return earlier.thread / kLanes == thread / kLanes &&
         earlier.clock < (lanes_[size_t(thread)].*past)[earlier.thread % kLanes];
}

std::optional<RaceDetector::Race> RaceDetector::access(int thread, const void* address,
                                                       size_t bytes, Access kind) {
  const auto* const start = static_cast<const std::byte*>(address);
  Region* const region = region_of(start);
  if (region == nullptr || (region->kind == Kind::kStatic && is_an_index(address)))
    return std::nullopt;
  const Record now{
      .block = block_, .thread = uint16_t(thread), .clock = lanes_[size_t(thread)].clock};
  const char* const does = kind == Access::kRead ? "reads" : "writes";
  Page* page = nullptr;
  for (size_t i = 0; i < bytes; ++i) {
    const auto offset = size_t(start + i - region->begin);
    if (page == nullptr || offset % kPageBytes == 0) page = &page_at(*region, offset / kPageBytes);
    Cell& cell = page->cells[offset % kPageBytes];
    if (!is_ordered(cell.write, thread, region->kind, &Lane::past))
      return Race{cell.write.thread, cell.write.block, does, "wrote", where(*region, start + i)};
    if (kind == Access::kRead) {
      if (cell.read.thread != now.thread || cell.read.block != now.block)
        cell.read_before = cell.read;
      cell.read = now;
      continue;
    }
    for (const Record& read : {cell.read, cell.read_before})
      if (!is_ordered(read, thread, region->kind, &Lane::past_reads))
        return Race{read.thread, read.block, does, "read", where(*region, start + i)};
    cell = {.write = now, .read = {}, .read_before = {}};
  }
  return std::nullopt;
}

std::string RaceDetector::where(const Region& region, const std::byte* address) {
  if (region.kind == Kind::kDynamicShared)
    return fmt::format("byte {} of dynamic shared memory", address - region.begin);
  if (region.kind == Kind::kStatic)
    return fmt::format("static shared memory at {}", static_cast<const void*>(address));
  return (device_memory().contains(address) ? device_memory() : pinned_memory()).describe(address);
}

}  // namespace fake_cuda::detail
