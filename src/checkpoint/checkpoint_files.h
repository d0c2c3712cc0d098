// One checkpoint: a directory with the tensors of every rank and a state.json that describes and
// seals them.
//
//   rank_00000_of_00002.safetensors   rank 0's output: tensors, and spans of tensors
//   rank_00001_of_00002.safetensors
//   state.json                        step, cursor, seed, tokens, config, the caller's extra; size,
//                                     XXH3-128 hash and spans of every other file; and a checksum
//                                     of itself
//
// Together the files hold every element of every tensor exactly once, however many ranks wrote
// them; any number of ranks can load any part. Sizes, hashes, names, types and shapes are all
// checked before the first byte reaches a device. Every defect is an Error that names the file or
// the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_state.h"
#include "core/io/file_system.h"
#include "core/io/safetensors.h"
#include "core/named_tensor.h"
#include "core/tensor.h"
#include "device/device.h"

namespace mpt {

// "rank_00000_of_00004.safetensors"
std::string rank_file_name(int64_t rank, int64_t ranks);

// Writes and syncs state.json in `directory`, then syncs the directory. `files` must already exist
// there.
void write_checkpoint_state(FileSystem& fs, const std::string& directory, const TrainState& state,
                            std::span<const CheckpointFile> files);

// Parses state.json and verifies its checksum; does not check other files.
TrainState read_checkpoint_state(FileSystem& fs, const std::string& directory);

// Like read_checkpoint_state(), but also checks sizes and headers of the files: together they must
// hold every tensor once. Does not read tensor data.
TrainState inspect_checkpoint(FileSystem& fs, const std::string& directory);

// Like inspect_checkpoint(), but also reads every file and compares its hash, showing progress.
TrainState verify_checkpoint(FileSystem& fs, const std::string& directory);
// Like verify_checkpoint(), but reads and hashes only every `ranks`-th file, starting with file
// `rank`.
TrainState verify_share_of_checkpoint(FileSystem& fs, const std::string& directory, int64_t rank,
                                      int64_t ranks);

// Verifies, then fills `tensors`. Throws Error unless the checkpoint holds exactly these tensors,
// with their types and shapes.
TrainState load_checkpoint(FileSystem& fs, const std::string& directory,
                           std::span<const NamedTensor> tensors, Device& device);

// Like load_checkpoint(), for some of the tensors, such as the weights: the checkpoint may hold
// others.
TrainState load_part_of_checkpoint(FileSystem& fs, const std::string& directory,
                                   std::span<const NamedTensor> tensors, Device& device);

// Like load_checkpoint(), but for a checkpoint that was just verified: checks only file sizes and
// reads only what is needed. A part without elements declares that this run has the tensor but
// loads none of it.
TrainState load_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                    std::span<const TensorPart> parts, Device& device);
TrainState load_part_of_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                            std::span<const TensorPart> parts, Device& device);

std::vector<TensorPart> whole_parts(std::span<const NamedTensor> tensors);

}  // namespace mpt
