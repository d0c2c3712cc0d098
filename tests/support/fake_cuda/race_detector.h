// Reports unsynchronized accesses of two threads to the same memory, at least one of them a write.
//
// Kernels are compiled to report every load and store (access_hooks.cpp). For each byte of the
// GPU's, pinned, shared and static memory, the latest write and the latest reads since then by two
// threads are kept: by which thread, and after how many of its barriers. The accesses of one thread
// are ordered, as are those before and after __syncthreads() in a block and those before and after
// __syncwarp() among the lanes of its mask. Blocks are not ordered.
//
// A shuffle, a vote or a reduction makes no write visible: reading after it what another lane wrote
// before it is reported. But it orders reads before later writes, as when a block of weights is
// encoded in place after the maximum of the decoded values: the lanes must have read their values
// to contribute them.
//
// Not detected: accesses by atomics, order by fences and flags (reported as a race), memcpy() and
// other library functions, a read before a write where two other threads have read since, and two
// launches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fake_cuda::detail {

enum class Access : uint8_t { kRead, kWrite };

class RaceDetector {
 public:
  RaceDetector();

  void begin_launch(const std::byte* shared, size_t shared_bytes);
  void begin_block(uint32_t block, int threads);
  // A barrier of all threads, or of lanes of the warp whose first thread is `first`.
  void sync_block();
  void sync_warp(int first, unsigned mask);
  // A shuffle, a vote or a reduction.
  void exchange(int first, unsigned mask);

  struct Race {
    int other;          // the thread whose access came first,
    uint32_t block;     // and its block
    const char* does;   // "reads"
    const char* did;    // "wrote"
    std::string where;  // "byte 4 of an allocation of 128 bytes"
  };
  std::optional<Race> access(int thread, const void* address, size_t bytes, Access kind);

 private:
  static constexpr int kLanes = 32;
  static constexpr size_t kPageBytes = 256;

  struct Record {  // of an access; clock 0: none
    uint32_t block = 0;
    uint16_t thread = 0;
    uint32_t clock = 0;
  };
  struct Cell {
    Record write, read, read_before;  // by another thread than `read`
  };
  struct Page {
    uint32_t launch = 0;  // to which these records belong
    std::array<Cell, kPageBytes> cells;
  };
  enum class Kind : uint8_t { kGlobal, kDynamicShared, kStatic };
  struct Region {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    Kind kind = Kind::kGlobal;
    std::vector<std::unique_ptr<Page>> pages{};

    [[nodiscard]] bool contains(const std::byte* address) const {
      return address >= begin && address < end;
    }
  };
  struct Lane {
    using Clocks = std::array<uint32_t, kLanes>;  // of the lanes of the warp

    uint32_t clock = 1;       // that accesses are noted with
    uint32_t past_block = 1;  // lower ones are before the block's latest barrier
    Clocks past{};            // lower ones of a lane are before what this one does next,
    Clocks past_reads{};      // and reads with these before what it writes
  };

  Region* region_of(const std::byte* address);
  Page& page_at(Region& region, size_t number);
  void join(int first, unsigned mask, Lane::Clocks Lane::*clocks);
  [[nodiscard]] bool is_ordered(const Record& earlier, int thread, Kind kind,
                                Lane::Clocks Lane::*past) const;
  [[nodiscard]] static std::string where(const Region& region, const std::byte* address);

  std::array<Region, 4> regions_;
  Region* latest_ = nullptr;
  uint32_t launch_ = 0, block_ = 0;
  std::vector<Lane> lanes_;
};

// Records an access of the kernel thread that this host thread runs, if any; called by
// access_hooks.cpp.
void note_access(const void* address, size_t bytes, Access kind);

}  // namespace fake_cuda::detail
