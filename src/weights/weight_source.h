// Weights that come from elsewhere: from another program's files, or from a checkpoint in any
// stored format.
//
//   CheckpointWeights source(fs, checkpoint, config_of_checkpoint, device);
//   set_weights(weights, source, device);
//
// A source gives every weight as FP32, exactly. Weights stored in a different format are encoded by
// CodecOps::encode(), rounded to nearest; weights already in the format are copied unchanged, codes
// and scales. The result depends on neither the number of ranks nor the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_parts.h"
#include "config/run_config.h"
#include "core/io/file_system.h"
#include "core/param_spec.h"
#include "device/device.h"
#include "model/weight_store.h"

namespace mpt {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Fills `target` [n, cols], FP32, with rows [first, first + n) of a parameter.
  virtual void read(const ParamSpec& spec, int64_t first, const Tensor& target) = 0;
  // Fills the parameter's pieces unchanged and returns true if they are stored in its encoding;
  // otherwise returns false.
  virtual bool copy(const ParamSpec& spec, const EncodedTensor& target) = 0;
};

// Sets all masters. Does not decode them (WeightStore::decode_weights).
void set_weights(const WeightStore& weights, WeightSource& source, Device& device);

// Effect of encoding on weights.
struct WeightChanges {
  int64_t weights = 0;
  int64_t changed = 0;
  int64_t to_zero = 0;  // of the changed weights
  double largest = 0;   // |after - before| / |before| over those that are not zero
  std::string where{};  // the parameter of the largest

  // "all kept exactly"; "12 of 345 changed by rounding, 3 to zero, others by at most 0.39 %
  // (lm_head.weight)"
  [[nodiscard]] std::string text() const;
};
// Sets all masters and compares every encoded weight with its source.
WeightChanges set_and_compare_weights(const WeightStore& weights, WeightSource& source,
                                      Device& device);

// How a checkpoint's parameters are stored.
WeightOptions stored_weights(const PrecisionConfig& precision);

// The weights of a checkpoint; its other tensors are not read.
class CheckpointWeights : public WeightSource {
 public:
  // `checkpoint` must have been verified; `config` is its own. `device` is that of the targets.
  CheckpointWeights(FileSystem& fs, const std::string& checkpoint, const RunConfig& config,
                    Device& device);
  void read(const ParamSpec& spec, int64_t first, const Tensor& target) override;
  bool copy(const ParamSpec& spec, const EncodedTensor& target) override;

 private:
  // Fills `target` with its number of rows, starting at row `first`.
  void fill(const ParamSpec& spec, int64_t first, const EncodedTensor& target);

  StoredTensors stored_;
  WeightOptions options_;
  Device& device_;
  std::vector<std::byte> staging_;
};

}  // namespace mpt
