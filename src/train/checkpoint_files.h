// One checkpoint: a directory with the tensors of every rank and a state.json that describes and seals them.
//
//   rank_00000_of_00001.safetensors   every tensor, rows packed without padding
//   state.json                        step, cursor, seed, tokens, config, what the caller adds, the size and
//                                     XXH3-128 hash of every other file, and a checksum of itself
//
// A checkpoint is read whole or not at all: sizes, hashes, names, types and shapes are all checked before the
// first byte reaches a device. Every defect is an Error that names the file or the tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/named_tensor.h"
#include "device/device.h"

namespace mpt {

// All of a run that is not a tensor. Values that are NaN or infinite come back as they were.
struct TrainState {
  int64_t step = 0;
  int64_t cursor = 0;  // global sequences consumed
  uint64_t seed = 0;
  nlohmann::json config;  // resolved
  nlohmann::json extra;   // the caller's: metrics window, scaling state
  int64_t tokens = 0;     // trained on so far
};

// Writes and syncs the files into `directory`, which it creates, and syncs that. Stages through 16 MiB.
void write_checkpoint(FileSystem& fs, const std::string& directory, const TrainState& state,
                      std::span<const NamedTensor> tensors, Device& device);

// Parses state.json and checks its seal, not the other files.
TrainState read_checkpoint_state(FileSystem& fs, const std::string& directory);

// As read_checkpoint_state, then reads every file and compares size and hash.
TrainState verify_checkpoint(FileSystem& fs, const std::string& directory);

// Verifies, then fills all of `tensors`: each must be there with its type and shape, and nothing else may be.
TrainState load_checkpoint(FileSystem& fs, const std::string& directory, std::span<const NamedTensor> tensors,
                           Device& device);

// The same for a part of the checkpoint's tensors, such as the weights alone: others may be there.
TrainState load_part_of_checkpoint(FileSystem& fs, const std::string& directory,
                                   std::span<const NamedTensor> tensors, Device& device);

}  // namespace mpt
