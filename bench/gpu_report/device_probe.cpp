#include "device_probe.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "config/run_device.h"
#include "core/bf16.h"
#include "core/check.h"
#include "core/float_format.h"
#include "core/normal.h"
#include "core/process_memory.h"
#include "core/random.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

class CpuProbe final : public DeviceProbe {
 public:
  void copy(std::byte* target, const std::byte* source, int64_t bytes) override {
    constexpr int64_t kPiece = 1 << 20;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < bytes; at += kPiece)
      memcpy(target + at, source + at, size_t(std::min(kPiece, bytes - at)));
  }
  [[nodiscard]] int64_t memory_in_use() override { return resident_bytes(); }
  [[nodiscard]] std::string memory_meaning() const override {
    return "resident memory of the process";
  }
  [[nodiscard]] Json description() override { return Json::object(); }
};

// Stores elements in their format: `out` has room for 4 bytes each.
void store(std::span<const float> values, DType dtype, std::byte* out) {
  const auto put = [&](size_t i, auto code) { memcpy(out + i * sizeof code, &code, sizeof code); };
  for (size_t i = 0; i < values.size(); ++i) switch (dtype) {
      case DType::kF32:
        put(i, values[i]);
        break;
      case DType::kBF16:
        put(i, bf16_nearest(values[i]));
        break;
      case DType::kE4M3:
        put(i, round_to<kE4M3>(values[i], Nearest{}));
        break;
      case DType::kE5M2:
        put(i, round_to<kE5M2>(values[i], Nearest{}));
        break;
      default:
        check(false, "no normally distributed numbers as {}", name_of(dtype));
    }
}

// Rows of a tensor in turn, each a drawn row rotated by a different distance.
class TurnedRows {
 public:
  TurnedRows(DType dtype, int64_t cols, uint32_t seed)
      : bytes_(cols * size_of(dtype)), size_(size_of(dtype)) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (uint32_t row = 0; row < kDrawn; ++row) {
      fill_normals({.seed = seed, .tensor = 0, .row = row, .step = 0, .stream = kSyntheticStream},
                   1.0, cols, values.data());
      drawn_.emplace_back(values.size() * 4);
      store(values, dtype, drawn_.back().data());
    }
  }
  void write(int64_t row, std::byte* out) const {
    const std::vector<std::byte>& source = drawn_[size_t(row) % kDrawn];
    const int64_t turn = row * 61 * size_ % bytes_;
    memcpy(out, source.data() + turn, size_t(bytes_ - turn));
    memcpy(out + bytes_ - turn, source.data(), size_t(turn));
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  static constexpr uint32_t kDrawn = 16;
  int64_t bytes_, size_;
  std::vector<std::vector<std::byte>> drawn_;
};

}  // namespace

std::unique_ptr<DeviceProbe> make_probe(Device& device) {
#ifdef MPT_WITH_CUDA
  if (device.backend() == Backend::kCuda) return make_cuda_probe(device);
#endif
  check(device.backend() == Backend::kCpu, "no probe for the backend {}",
        name_of(device.backend()));
  return std::make_unique<CpuProbe>();
}

std::unique_ptr<Device> device_named(const std::string& name) {
  const auto type = enum_from_name<DeviceType>(name);
  if (!type) throw error("--device: '{}' is not one of: {}", name, all_names<DeviceType>());
  return make_device(DeviceConfig{.type = *type});
}

void fill_with_normals(const Tensor& tensor, uint32_t seed, Device& device) {
  const TurnedRows rows(tensor.dtype, tensor.cols, seed);
  const int64_t band = std::clamp<int64_t>((int64_t{64} << 20) / rows.bytes(), 1, tensor.rows);
  std::vector<std::byte> values(static_cast<size_t>(band * rows.bytes()));
  for (int64_t first = 0; first < tensor.rows; first += band) {
    const int64_t count = std::min(band, tensor.rows - first);
    for (int64_t r = 0; r < count; ++r) rows.write(first + r, values.data() + r * rows.bytes());
    device.upload(values.data(), tensor.row_range(first, count));
  }
}

}  // namespace mpt
