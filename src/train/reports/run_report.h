// The lines a run logs before its first step, and the report of `mpretrain plan`: model, device,
// ranks, memory.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "config/run_data.h"
#include "device/device.h"
#include "ranks/communicator.h"
#include "train/resources/memory_fit.h"

namespace mpt {

// One line of a table.
template <class... Args>
std::string row(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format("  {:<22} {}\n", label, fmt::format(format, std::forward<Args>(args)...));
}
// Thousands separated: 58,073,600.
std::string grouped(int64_t n);
// How often a run reads a corpus.
struct CorpusEpochs {
  std::string corpus;  // "" where corpora have no names
  double epochs = 0;
  double part_of_rows = 0;  // of all rows of the run
};
std::vector<CorpusEpochs> epochs_of(const RunConfig& config, const Mixture& data);
// "1.20 epochs"; for several corpora
// "2 corpora: books 20.0 % of the rows, 3.10 epochs; web 80.0 %, 0.40 epochs".
std::string epochs_text(const std::vector<CorpusEpochs>& corpora);

// A run about to start.
struct RunStart {
  std::string config;  // the file
  std::string place;   // "written to runs/nano"
  const Mixture& training;
  const std::vector<ValidationSet>& validation;
  const Communicator& ranks = Communicator::single();
  FreeMemory memory{};  // before the run allocates any
  std::string rows{};   // why micro-batches have this many rows; "" if the config names the number
};
// One line each for model, optimizer, batch and memory, for one phase.
std::vector<std::string> phase_lines(const RunConfig& config, Device& device,
                                     const RunStart& start);
// The same with lines for run, data and device, and for the phases if there are several.
std::vector<std::string> start_lines(const RunConfig& config, Device& device,
                                     const RunStart& start);

// Config, model and parameters by kind.
std::string model_report(const RunConfig& config);
// Memory by purpose and on the device, bytes per parameter, the largest micro-batch that fits.
std::string memory_report(const RunConfig& config, Device& device,
                          const Communicator& ranks = Communicator::single());
// The same figures as JSON: parameters, steps, storage and memory, in bytes.
nlohmann::ordered_json plan_json(const RunConfig& config, Device& device,
                                 const Communicator& ranks = Communicator::single());
// The ranks, each rank's share of a step, and the bytes it sends.
std::string ranks_report(const RunConfig& config, Device& device, const Communicator& ranks);
// report.json of a run: data of its last start, and plan_json(). `program`: version that made it.
nlohmann::ordered_json report_json(const RunConfig& config, Device& device,
                                   const Communicator& ranks, const std::string& program);
// All of these reports.
std::string plan_report(const RunConfig& config, Device& device, const Communicator& ranks);
// Device, libraries and the attention in use.
std::string device_report(const RunConfig& config, Device& device,
                          const Communicator& ranks = Communicator::single());

}  // namespace mpt
