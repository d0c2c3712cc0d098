// The data of a run: its corpora with the loader of batches, and its validation sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/run_data.h"
#include "data/dataloader.h"
#include "data/mixture.h"
#include "ranks/communicator.h"
#include "train/resume/resumed_data.h"

namespace mpt {

class TrainingData {
 public:
  // `phase` defines the batches.
  TrainingData(const RunConfig& config, const RunConfig& phase, const Communicator& ranks);

  [[nodiscard]] const Mixture& training() const { return *training_; }
  [[nodiscard]] const std::vector<ValidationSet>& validation() const { return validation_; }
  [[nodiscard]] DataLoader& loader() { return loader_; }

  // Returns the data of the saved run after check_corpora().
  [[nodiscard]] FormerData checked(const TrainState& saved, const std::string& checkpoint,
                                   const RunConfig& config) const;
  // Continues after its first `rows` rows.
  void continue_from(const FormerData& former, int64_t rows);
  // Adds the position, and add_data().
  void add_to(TrainState& state) const;

 private:
  [[nodiscard]] PresentData present() const;

  std::shared_ptr<const Mixture> training_;
  std::vector<ValidationSet> validation_;
  DataContents shards_, validation_shards_;  // as opened
  FormerData former_;                        // of the run that this one continues
  DataLoader loader_;
};

}  // namespace mpt
