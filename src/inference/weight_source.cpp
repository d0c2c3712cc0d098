#include "inference/weight_source.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "core/progress.h"
#include "precision/codec_ops.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

constexpr int64_t kStagedElements = int64_t{1} << 22;

// Rows that can be encoded on their own: all if the tensor has one scale.
int64_t rows_at_a_time(const EncodedTensor& tensor) {
  if (tensor.tensor_scale.rows > 0) return tensor.rows;
  return std::clamp<int64_t>(kStagedElements / tensor.cols, 1, tensor.rows);
}

EncodedTensor rows_of(EncodedTensor tensor, int64_t first, int64_t rows) {
  tensor.rows = rows;
  tensor.codes = tensor.codes.row_range(first, rows);
  if (tensor.block_scales.rows > 0)
    tensor.block_scales = tensor.block_scales.row_range(first, rows);
  return tensor;
}

EncodedTensor encoded_rows(const ParamSpec& spec, int64_t rows, const WeightEncoding& encoding,
                           Allocator& allocator) {
  return allocate_encoded(encoding,
                          {.rows = rows,
                           .cols = spec.cols,
                           .physical_rows = rows,
                           .physical_cols = spec.cols,
                           .rank = spec.rank()},
                          kScratchMemory, allocator);
}

int64_t most_rows(const WeightStore& weights) {
  return std::ranges::max(weights.specs(), {}, [](const ParamSpec& s) { return s.rows; }).rows;
}

// Goes through all parameters in bands of rows, with FP32 memory for as many as are needed at once.
class RowBands {
 public:
  RowBands(const WeightStore& weights, Device& device)
      : weights_(weights),
        allocator_(device.make_allocator()),
        ops_(make_ops<CodecOps>(device.stream(), {*allocator_, most_rows(weights)})) {
    for (const ParamSpec& spec : weights.specs())
      most_ = std::max(most_, rows_at_a_time(master(spec)) * spec.cols);
  }

  [[nodiscard]] const EncodedTensor& master(const ParamSpec& spec) const {
    return weights_.master(spec.tensor_id);
  }
  [[nodiscard]] CodecOps& ops() const { return *ops_; }
  // FP32 for the largest band.
  [[nodiscard]] Tensor staging() const {
    return allocator_->tensor(kScratchMemory, DType::kF32, 1, most_);
  }

  // Calls work(first row, rows of the master, FP32 of their shape in `staging`).
  template <class Work>
  void each(const ParamSpec& spec, const Tensor& staging, const Work& work) const {
    const int64_t band = rows_at_a_time(master(spec));
    for (int64_t row = 0; row < spec.rows; row += band) {
      const int64_t rows = std::min(band, spec.rows - row);
      work(row, rows_of(master(spec), row, rows),
           Tensor{staging.data, DType::kF32, rows, spec.cols, spec.cols});
    }
  }

 private:
  const WeightStore& weights_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<CodecOps> ops_;
  int64_t most_ = 0;
};

}  // namespace

void set_weights(const WeightStore& weights, WeightSource& source, Device& device) {
  const RowBands bands(weights, device);
  const Tensor staging = bands.staging();
  Progress progress({.label = "read weights", .total = total_elements(weights.specs())});
  int64_t done = 0;
  for (const ParamSpec& spec : weights.specs()) {
    if (!source.copy(spec, bands.master(spec)))
      bands.each(spec, staging, [&](int64_t row, const EncodedTensor& target, const Tensor& x) {
        source.read(spec, row, x);
        bands.ops().encode(x, target);
      });
    progress.update(done += spec.elements());
  }
  device.synchronize();
}

namespace {

std::vector<float> downloaded(const Tensor& x, Device& device) {
  std::vector<float> values(static_cast<size_t>(x.elements()));
  device.download(x, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

void compare(const std::string& name, const std::vector<float>& before,
             const std::vector<float>& after, WeightChanges& changes) {
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    ++changes.changed;
    if (after[i] == 0) {
      ++changes.to_zero;
      continue;
    }
    const double change = std::fabs((double(after[i]) - before[i]) / before[i]);
    if (!(change > changes.largest)) continue;
    changes.largest = change;
    changes.where = name;
  }
}

}  // namespace

WeightChanges changes_of(const WeightStore& weights, WeightSource& source, Device& device) {
  const RowBands bands(weights, device);
  const Tensor staging = bands.staging(), other = bands.staging();
  WeightChanges changes{.weights = total_elements(weights.specs())};
  Progress progress({.label = "compare weights", .total = changes.weights});
  int64_t done = 0;
  for (const ParamSpec& spec : weights.specs()) {
    bands.each(spec, staging, [&](int64_t row, const EncodedTensor& stored, const Tensor& x) {
      source.read(spec, row, x);
      const Tensor decoded{other.data, DType::kF32, x.rows, x.cols, x.stride};
      bands.ops().decode(stored, decoded);
      compare(spec.name, downloaded(x, device), downloaded(decoded, device), changes);
    });
    progress.update(done += spec.elements());
  }
  return changes;
}

std::string WeightChanges::text() const {
  if (changed == 0) return "all kept exactly";
  const std::string zeros = to_zero > 0 ? fmt::format("{} to zero, others ", to_zero) : "";
  return fmt::format("{} of {} changed by rounding, {}by at most {:.3g} % ({})", changed, weights,
                     zeros, 100 * largest, where);
}

// --- checkpoints ---------------------------------------------------------------------------------

WeightOptions stored_weights(const PrecisionConfig& precision) {
  const DType storage = precision.weights == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
  return {.storage = storage,
          .gradient = storage,
          .linears = linear_encoding(precision),
          .linear_copies = LinearCopies::kNone,
          .gradients = Gradients::kNone};
}

CheckpointWeights::CheckpointWeights(FileSystem& fs, const std::string& checkpoint,
                                     const RunConfig& config, Device& device)
    : stored_(fs, checkpoint, read_checkpoint_record(fs, checkpoint).files),
      options_(stored_weights(config.precision)),
      device_(device) {}

void CheckpointWeights::read(const ParamSpec& spec, int64_t first, const Tensor& target) {
  const std::unique_ptr<Allocator> allocator = device_.make_allocator();  // freed on return
  const EncodedTensor rows =
      encoded_rows(spec, target.rows, options_.encoding_of(spec.kind), *allocator);
  fill(spec, first, rows);
  make_ops<CodecOps>(device_.stream(), {*allocator, target.rows})->decode(rows, target);
  device_.synchronize();
}

bool CheckpointWeights::copy(const ParamSpec& spec, const EncodedTensor& target) {
  if (target.encoding != options_.encoding_of(spec.kind)) return false;
  const int64_t band = std::clamp<int64_t>(kStagedElements / spec.cols, 1, spec.rows);
  for (int64_t row = 0; row < spec.rows; row += band)
    fill(spec, row, rows_of(target, row, std::min(band, spec.rows - row)));
  return true;
}

// The pieces of a range of rows are ranges of rows themselves; a tensor's scale is there whole.
void CheckpointWeights::fill(const ParamSpec& spec, int64_t first, const EncodedTensor& target) {
  PlanningAllocator plan;
  const std::vector<NamedTensor> whole = encoded_rows(spec, spec.rows, target.encoding, plan)
                                             .pieces(spec.name),
                                 wanted = target.pieces(spec.name);
  for (size_t i = 0; i < whole.size(); ++i) {
    const Tensor& piece = wanted[i].tensor;
    const int64_t element = whole[i].tensor.rows == spec.rows ? first * piece.cols : 0;
    staging_.resize(static_cast<size_t>(piece.elements() * size_of(piece.dtype)));
    StoredTensors::read(stored_.at(whole_part(whole[i])), element, staging_);
    device_.upload(staging_.data(), piece);
  }
}

}  // namespace mpt
