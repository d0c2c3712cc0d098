// Memory of the fake GPU: inaccessible to host code, and checked for writes past the end of an
// allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fake_cuda::detail {

enum class Place : uint8_t { kDevice, kPinned, kPageable };

// Allocations are aligned to 256 bytes and separated by guard words, in an address range reserved
// for them.
class Arena {
 public:
  enum class Access : uint8_t { kAlways, kOnDemand };
  explicit Arena(Access access);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* allocate(size_t bytes);  // filled with garbage
  // Returns false if nothing was allocated there.
  bool free(void* pointer);
  [[nodiscard]] bool contains(const void* pointer) const {
    return pointer >= begin_ && pointer < begin_ + kBytes;
  }
  [[nodiscard]] const std::byte* begin() const { return begin_; }
  [[nodiscard]] const std::byte* end() const { return begin_ + kBytes; }
  // "byte 4 of an allocation of 128 bytes"
  [[nodiscard]] std::string describe(const void* pointer) const;
  // Whether the whole range lies in one allocation.
  [[nodiscard]] bool holds(const void* pointer, size_t bytes) const;
  // Describes writes outside one allocation, or outside a few of them, different ones on each call.
  // Needs access.
  [[nodiscard]] std::optional<std::string> damage_at(void* pointer) const;
  [[nodiscard]] std::optional<std::string> damage_of_some();

  void open();
  void close();

  [[nodiscard]] int64_t live_bytes() const { return live_bytes_; }
  [[nodiscard]] int64_t live_allocations() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  static constexpr size_t kBytes = size_t{1} << 40;  // of address space

  [[nodiscard]] static size_t span_of(size_t bytes);
  [[nodiscard]] static std::optional<std::string> damage_of(const std::byte* data, size_t bytes);
  void protect(int protection);

  Access access_;
  std::byte* begin_;
  size_t used_ = 0;  // of the address space, from its beginning
  int opened_ = 0;
  std::map<std::byte*, size_t> blocks_;  // by the pointer given out
  int64_t live_bytes_ = 0;
  std::byte* looked_at_ = nullptr;  // last
};

// Makes the GPU's memory accessible during its lifetime.
class Opened {
 public:
  explicit Opened(Arena& arena) : arena_(arena) { arena_.open(); }
  ~Opened() { arena_.close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  Arena& arena_;
};

Arena& device_memory();
Arena& pinned_memory();
[[nodiscard]] Place place_of(const void* pointer);
// Whether a kernel argument holds the address of host memory. Some are missed.
[[nodiscard]] bool is_host_address(uint64_t word);

}  // namespace fake_cuda::detail
