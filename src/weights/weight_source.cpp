#include "weights/weight_source.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "core/progress.h"
#include "model/row_bands.h"
#include "precision/codec_ops.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

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

// Calls encoded(spec, x, target) for every band that was encoded; copied weights have no bands.
template <class Encoded>
void encode_weights(const RowBands& bands, const WeightStore& weights, WeightSource& source,
                    const Encoded& encoded) {
  const Tensor staging = bands.staging();
  Progress progress({.label = "read weights", .total = total_elements(weights.specs())});
  int64_t done = 0;
  for (const ParamSpec& spec : weights.specs()) {
    if (!source.copy(spec, bands.master(spec)))
      bands.each(spec, staging, [&](int64_t row, const EncodedTensor& target, const Tensor& x) {
        source.read(spec, row, x);
        bands.ops().encode(x, target);
        encoded(spec, x, target);
      });
    progress.update(done += spec.elements());
  }
}

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

void set_weights(const WeightStore& weights, WeightSource& source, Device& device) {
  encode_weights(RowBands(weights, device), weights, source,
                 [](const ParamSpec&, const Tensor&, const EncodedTensor&) {});
  device.synchronize();
}

WeightChanges set_and_compare_weights(const WeightStore& weights, WeightSource& source,
                                      Device& device) {
  const RowBands bands(weights, device);
  const Tensor other = bands.staging();
  WeightChanges changes{.weights = total_elements(weights.specs())};
  encode_weights(bands, weights, source,
                 [&](const ParamSpec& spec, const Tensor& x, const EncodedTensor& stored) {
                   const Tensor decoded{other.data, DType::kF32, x.rows, x.cols, x.stride};
                   bands.ops().decode(stored, decoded);
                   compare(spec.name, downloaded(x, device), downloaded(decoded, device), changes);
                 });
  device.synchronize();
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

// The pieces of a range of rows are ranges of rows themselves; a tensor scale is stored whole.
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
