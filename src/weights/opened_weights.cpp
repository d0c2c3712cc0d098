#include "weights/opened_weights.h"

#include "config/run_copies.h"
#include "core/io/run_paths.h"
#include "weights/model_tokenizer.h"

namespace mpt {

OpenedWeights<CheckpointWeights> opened_at(FileSystem& fs, const std::string& checkpoint,
                                           Device& device) {
  OpenedWeights<CheckpointWeights> opened{saved_weights_at(fs, checkpoint), nullptr};
  opened.source = std::make_unique<CheckpointWeights>(fs, checkpoint, opened.saved.config, device);
  return opened;
}

WeightsCheckpoint checkpoint_like(FileSystem& fs, const SavedWeights& saved,
                                  const WeightsConfig& wanted, Overwrite overwrite) {
  const std::string run = run_of_checkpoint(saved.checkpoint),
                    manifest = in_directory(run, kRunManifest);
  const bool kept = !run.empty() && has_optional_file(fs, manifest);
  return {.output = wanted.output,
          .overwrite = overwrite,
          .config = config_of_weights(saved.config, wanted),
          .tokenizer = find_tokenizer(saved, "").path,
          .manifest = kept ? manifest : "",
          .weights_of = saved.json(),
          .source = saved.source};
}

}  // namespace mpt
