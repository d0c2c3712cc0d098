// What a run says before its first step, in a few lines, and the figures of `mpretrain plan`: model, device,
// ranks, memory.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "data/sequence_source.h"
#include "device/device.h"

namespace mpt {

// One line of a table.
template <class... Args>
std::string row(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format("  {:<22} {}\n", label, fmt::format(format, std::forward<Args>(args)...));
}
// Thousands separated: 58,073,600.
std::string grouped(int64_t n);
// How many times a run reads data of so many sequences.
double epochs(const RunConfig& config, int64_t sequences);

// What a run is about to do.
struct RunStart {
  std::string config;  // the file
  std::string place;   // "written to runs/nano"
  const SequenceSource& training;
  const SequenceSource* validation;  // may be null
  const Communicator& ranks = Communicator::single();
  int64_t sharing = 1;  // ranks that take memory from the device
};
// A line each: run, model, optimizer, data, batch, memory, device.
std::vector<std::string> start_lines(const RunConfig& config, Device& device, const RunStart& start);

// Config, model and parameters by kind.
std::string model_report(const RunConfig& config);
// Memory by purpose against what the device has, bytes per parameter, the largest micro-batch that fits.
std::string memory_report(const RunConfig& config, Device& device,
                          const Communicator& ranks = Communicator::single());
// The same figures for programs: parameters, steps, storage and memory, in bytes.
nlohmann::ordered_json plan_json(const RunConfig& config, Device& device,
                                 const Communicator& ranks = Communicator::single());
// How many ranks, what is a rank's of a step, and what it sends.
std::string ranks_report(const RunConfig& config, Device& device, const Communicator& ranks);
// All of these.
std::string plan_report(const RunConfig& config, Device& device, const Communicator& ranks);
// Device and libraries.
std::string device_report(Device& device);

// Throws Error with the figures if training would not fit in the device's memory, which `sharing` ranks like
// this one take from.
void require_memory(const RunConfig& config, Device& device,
                    const Communicator& ranks = Communicator::single(), int64_t sharing = 1);

// Rows of the largest micro-batch that divides a step and takes at most so many bytes; 0 if none does.
int64_t largest_micro_batch(const RunConfig& config, Device& device, const Communicator& ranks,
                            int64_t available);

// Whether the device says what it has; one that only plans has nothing.
bool knows_memory(const Device& device);

}  // namespace mpt
