#include "weights/convert.h"

#include <memory>
#include <string>

#include "config/run_device.h"
#include "weights/loaded_model.h"
#include "weights/opened_weights.h"
#include "weights/weights_checkpoint.h"

namespace mpt {

ConvertedCheckpoint convert_checkpoint(FileSystem& fs, const ConvertOptions& options) {
  check_weights_output(fs, options.wanted.output, options.overwrite);
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  const OpenedWeights<CheckpointWeights> opened = with_checkpoint(
      fs, options.checkpoint,
      [&](const std::string& checkpoint) { return opened_at(fs, checkpoint, *device); });
  const SavedWeights& saved = opened.saved;
  tell_what_is_left_out(saved);
  const WeightsCheckpoint made = checkpoint_like(fs, saved, options.wanted, options.overwrite);
  ConvertedCheckpoint result{
      .checkpoint = saved.checkpoint, .step = saved.step, .config = made.config, .changes = {}};
  result.changes = write_weights_checkpoint(fs, made, *opened.source, *device);
  return result;
}

}  // namespace mpt
