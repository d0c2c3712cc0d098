#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "device/backends.h"
#include "device/cpu/available_memory.h"
#include "device/cpu/cpu_kernels.h"
#include "device/processors.h"

namespace mpt {
namespace {

// Zero pages directly from the kernel, first touched by the thread that uses them. Buffers are
// placed consecutively in regions of huge pages; buffers of a few MiB mapped separately would get
// hardly any.
class CpuAllocator final : public Allocator {
 public:
  ~CpuAllocator() override {
    for (const auto& region : regions_) munmap(region.data(), region.size());
  }
  CpuAllocator() = default;
  CpuAllocator(const CpuAllocator&) = delete;
  CpuAllocator& operator=(const CpuAllocator&) = delete;

  std::byte* bytes(MemoryPurpose purpose, int64_t count) override {
    const auto size = static_cast<size_t>(align_up(std::max<int64_t>(count, 1), kAlignment));
    if (size > room_.size() && !reserve(std::max(size, std::min(reserved_, kLargestRegion))) &&
        !reserve(size))
      throw error("out of memory: {} for {} could not be reserved", format_bytes(double(count)),
                  purpose.name);
    use_.add(purpose, align_up(count, kAlignment));
    std::byte* const buffer = room_.data();
    room_ = room_.subspan(size);
    return buffer;
  }
  [[nodiscard]] const MemoryUse& use() const override { return use_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  // Regions double in size up to this; their unused end is never touched, except for part of a
  // page.
  static constexpr size_t kLargestRegion = size_t{1} << 30;

  // Maps a region for size bytes; returns false if out of memory.
  bool reserve(size_t size) {
    size = static_cast<size_t>(align_up(static_cast<int64_t>(size), kHugePage));
    const size_t mapped = size + kHugePage;  // extra, to align to a huge page
    void* const address =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return false;
    auto* const begin = static_cast<std::byte*>(address);
    const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
    if (before > 0) munmap(begin, before);
    munmap(begin + before + size, kHugePage - before);
    room_ = regions_.emplace_back(begin + before, size);
    madvise(room_.data(), size, MADV_HUGEPAGE);
    reserved_ += size;
    return true;
  }

  MemoryUse use_;
  std::vector<std::span<std::byte>> regions_;
  std::span<std::byte> room_;  // unused end of the last region
  size_t reserved_ = 0;        // total bytes mapped
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

// OMP_NUM_THREADS if set ("4", or "4,2" for nested loops), else one thread per processor.
int default_threads() {
  constexpr int kMost = 4096;
  const char* text = std::getenv("OMP_NUM_THREADS");
  const std::string_view wanted = text == nullptr ? "" : text;
  int threads = 0;
  const auto [end, fault] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), threads);
  const bool good = fault == std::errc() && threads >= 1 && threads <= kMost &&
                    (end == wanted.data() + wanted.size() || *end == ',');
  return good ? threads : available_processors();
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, Bf16Dot dot)
      : threads_(threads > 0 ? threads : default_threads()),
        gemm_(threads_, dot),
        attention_(threads_, gemm_) {
    omp_set_num_threads(threads_);
    omp_set_max_active_levels(1);
  }

  [[nodiscard]] Backend backend() const override { return Backend::kCpu; }
  [[nodiscard]] std::string name() const override {
    return fmt::format("CPU: {}, {}", processor_name(), counted(threads_, "thread"));
  }
  [[nodiscard]] std::string libraries() const override { return gemm_.description(); }
  [[nodiscard]] int64_t memory_bytes() const override { return available_memory(); }
  std::unique_ptr<Allocator> make_allocator() override { return std::make_unique<CpuAllocator>(); }

  // memcpy must not be given a null pointer, even for zero bytes.
  void download(const Tensor& source, std::byte* target) override {
    const int64_t row = source.cols * size_of(source.dtype),
                  stride = source.stride * size_of(source.dtype);
    if (row == 0) return;
    for (int64_t r = 0; r < source.rows; ++r)
      memcpy(target + r * row, source.data + r * stride, size_t(row));
  }
  void upload(const std::byte* source, const Tensor& target) override {
    const int64_t row = target.cols * size_of(target.dtype),
                  stride = target.stride * size_of(target.dtype);
    if (row == 0) return;
    for (int64_t r = 0; r < target.rows; ++r)
      memcpy(target.data + r * stride, source + r * row, size_t(row));
  }
  void synchronize() override {}
  Gemm& gemm() override { return gemm_; }
  Attention& attention() override { return attention_; }

 private:
  int threads_;
  CpuGemm gemm_;
  CpuAttention attention_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads, Bf16Dot dot) {
  return std::make_unique<CpuDevice>(threads, dot);
}

}  // namespace mpt
