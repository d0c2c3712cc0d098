// Tiny runs (tiny_run.h) with several ranks as threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "checkpoint/checkpoint_files.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "core/io/safetensors.h"
#include "ranks/communicator.h"
#include "support/forwarding_transport.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "train/step/training_model.h"

namespace mpt::test {

// Objects that each rank of a run owns, made in its own thread.
struct RankOfRun {
  Transport& transport;
  std::unique_ptr<Device> device;
  Communicator ranks{std::make_unique<ForwardingTransport>(transport), device->make_comm_stream(),
                     *device};
};

// Runs `work` on `ranks` ranks; throws the first failure.
inline void on_ranks(const RunConfig& config, int64_t ranks,
                     const std::function<void(RankOfRun&)>& work) {
  run_ranks(ranks, [&](Transport& transport) {
    RankOfRun rank{transport, make_device(config.device)};
    work(rank);
  });
}

// Trains one rank to the end, from the start or from a checkpoint.
inline void train_rank(RankOfRun& rank, const RunConfig& config, const std::string& from = "",
                       FileSystem& fs = posix_file_system()) {
  std::unique_ptr<Trainer> trainer;
  rank.ranks.or_abort([&] {
    trainer = std::make_unique<Trainer>(config, *rank.device, fs, rank.ranks);
    from.empty() ? trainer->initialize() : trainer->resume(from);
    trainer->run();
  });
}

// Trains all ranks. A single rank needs none of this.
inline void train_on(int64_t ranks, const RunConfig& config, const std::string& from = "",
                     FileSystem& fs = posix_file_system()) {
  if (ranks == 1) return train(config, from, fs);
  posix_file_system().create_directories(run_directory(config));
  on_ranks(config, ranks, [&](RankOfRun& rank) { train_rank(rank, config, from, fs); });
}

// All weights and states at a step, however many ranks saved them.
inline std::string state_at(const RunConfig& config, int64_t step) {
  const auto device = make_device(config.device);
  const auto allocator = device->make_allocator();
  const TrainingModel model(config, *device, *allocator);
  const std::vector<NamedTensor> tensors = model.named_tensors();
  load_checkpoint(posix_file_system(), checkpoint_path(config, step), tensors, *device);
  std::string all;
  for (const NamedTensor& named : tensors) {
    std::string bytes(size_t(named.tensor.elements() * size_of(named.tensor.dtype)), '\0');
    device->download(named.tensor, reinterpret_cast<std::byte*>(bytes.data()));
    all += bytes;
  }
  return all;
}

inline std::map<int64_t, nlohmann::json> records_of(const RunConfig& config) {
  return read_metrics(posix_file_system(), metrics_path(config));
}

}  // namespace mpt::test
