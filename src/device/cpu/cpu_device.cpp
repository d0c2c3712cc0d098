#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <omp.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check.h"
#include "core/progress.h"
#include "device/cpu/cpu_attention.h"
#include "device/cpu/cpu_gemm.h"

namespace mpt {
namespace {

// Zero pages straight from the kernel: page-aligned, first touched by the thread that uses them.
class CpuAllocator final : public Allocator {
 public:
  ~CpuAllocator() override {
    for (const auto& [address, size] : regions_) munmap(address, size);
  }
  CpuAllocator() = default;
  CpuAllocator(const CpuAllocator&) = delete;
  CpuAllocator& operator=(const CpuAllocator&) = delete;

  std::byte* bytes(Purpose purpose, int64_t count) override {
    use_.add(purpose, align_up(count, kAlignment));
    const auto size = static_cast<size_t>(std::max<int64_t>(count, 1));
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
      throw error("out of memory: {} for {} could not be reserved", format_bytes(double(count)),
                  name_of(purpose));
    regions_.emplace_back(address, size);
    if (size >= kHugePage) madvise(address, size, MADV_HUGEPAGE);
    return static_cast<std::byte*>(address);
  }
  [[nodiscard]] const MemoryUse& use() const override { return use_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  MemoryUse use_;
  std::vector<std::pair<void*, size_t>> regions_;
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// What the kernel says can be had without swapping; all of the memory where it does not say.
int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads)
      : threads_(threads > 0 ? threads : available_processors()), gemm_(threads_), attention_(threads_) {
    omp_set_num_threads(threads_);
    omp_set_max_active_levels(1);
  }

  [[nodiscard]] Backend backend() const override { return Backend::kCpu; }
  [[nodiscard]] std::string name() const override {
    return fmt::format("CPU: {}, {} thread{}", processor_name(), threads_, threads_ == 1 ? "" : "s");
  }
  [[nodiscard]] std::string libraries() const override { return cpu_gemm_description(); }
  [[nodiscard]] int64_t memory_bytes() const override { return available_memory(); }
  std::unique_ptr<Allocator> make_allocator() override { return std::make_unique<CpuAllocator>(); }

  // memcpy takes no null pointer, not even for nothing.
  void download(const Tensor& source, std::byte* target) override {
    const int64_t row = source.cols * size_of(source.dtype), stride = source.stride * size_of(source.dtype);
    if (row == 0) return;
    for (int64_t r = 0; r < source.rows; ++r) memcpy(target + r * row, source.data + r * stride, size_t(row));
  }
  void upload(const std::byte* source, const Tensor& target) override {
    const int64_t row = target.cols * size_of(target.dtype), stride = target.stride * size_of(target.dtype);
    if (row == 0) return;
    for (int64_t r = 0; r < target.rows; ++r) memcpy(target.data + r * stride, source + r * row, size_t(row));
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

std::unique_ptr<Device> make_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace mpt
