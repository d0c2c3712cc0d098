// The ranks of a run: how a process reaches the others, and how it ends together with them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/collectives.h"
#include "comm/launch_environment.h"
#include "train/rank_group.h"
#include "train/rank_shape.h"
#include "train/run_config.h"

namespace mpt {

// Of null: a rank alone.
RankShape shape_of(const Collectives* ranks);
// What only exchanges host memory sees, in the order of collectives.
RankGroup rank_group(Collectives* ranks);

// Runs what all ranks do. If it throws, that is logged and told to the others before it is passed on; what
// collectives still use must outlive this. `ranks` may be null.
void or_abort(Collectives* ranks, const std::function<void()>& work);

// This process among the others, by what carries tensors of `device`.
class Ranks {
 public:
  // Throws Error where the others cannot be reached.
  Ranks(const LaunchEnvironment& environment, const DistributedConfig& config, Device& device);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Null for a rank alone.
  [[nodiscard]] Collectives* collectives() { return collectives_ ? &*collectives_ : nullptr; }

 private:
  std::unique_ptr<SideQueue> queue_;
  std::unique_ptr<Transport> transport_;
  std::optional<Collectives> collectives_;
  Device* device_ = nullptr;  // whose waits are guarded
};

}  // namespace mpt
