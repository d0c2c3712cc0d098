#include "train/resources/memory_fit.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>

#include "config/batch_plan.h"
#include "config/run_device.h"
#include "core/check.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "train/step/training_model.h"

namespace mpt {

FreeMemory free_memory(const Device& device, int64_t sharing) {
  FreeMemory memory{.bytes = device.memory_bytes(), .backend = device.backend()};
  memory.sharing = sharing;
  if (memory.known()) memory.bytes /= sharing;
  return memory;
}

int64_t ranks_sharing(const Device& device, const Communicator& ranks) {
  return device.backend() == Backend::kCpu ? ranks.size() : 1;
}

int64_t head_room(const FreeMemory& memory) {
  constexpr int64_t kParts = 10, kLeastOnGpu = int64_t{1} << 30;
  const int64_t part = memory.bytes / kParts;
  return memory.backend == Backend::kCpu ? part : std::max(part, kLeastOnGpu);
}

// --- largest micro-batch -------------------------------------------------------------------------

RunConfig with_micro_batch(const RunConfig& config, int64_t rows) {
  RunConfig changed = config;
  changed.batch.micro_batch_rows = rows;
  return changed;
}

namespace {

int64_t micro_batches_of(BatchConfig batch, int64_t rows, int64_t ranks) {
  batch.micro_batch_rows = rows;
  return batch_plan(batch, 0, ranks).most_micro_batches;
}

// Returns divisors of a step's rows, from large to small, one for each number of micro-batches.
std::vector<int64_t> possible_rows(const BatchConfig& batch, int64_t ranks) {
  const int64_t rows = batch.rows_per_step();
  std::vector<int64_t> possible;
  int64_t last = 0;  // micro-batches of the last one
  for (int64_t parts = 1; parts <= rows; ++parts) {
    if (rows % parts != 0) continue;
    const int64_t count = micro_batches_of(batch, rows / parts, ranks);
    if (count == last)
      possible.back() = rows / parts;
    else
      possible.push_back(rows / parts);
    last = count;
  }
  return possible;
}

}  // namespace

// Tries the whole step first: gradients added to only once are held in BF16, so it may need less
// memory than half a step.
int64_t largest_micro_batch(const RunConfig& config, Device& device, const Communicator& ranks,
                            const FreeMemory& memory, int64_t most) {
  const int64_t limit = memory.bytes - head_room(memory);
  const auto fits = [&](int64_t rows, int64_t bytes) {
    return planned_memory(with_micro_batch(config, rows), device, ranks).total() <= bytes;
  };
  const std::vector<int64_t> possible = possible_rows(config.batch, ranks.size());
  const int64_t whole = possible.front();
  if (whole <= most && fits(whole, memory.backend == Backend::kCpu ? memory.bytes : limit))
    return whole;
  const auto found = std::partition_point(possible.begin() + 1, possible.end(), [&](int64_t rows) {
    return rows > most || !fits(rows, limit);
  });
  return found == possible.end() ? 0 : *found;
}

// --- choice --------------------------------------------------------------------------------------

namespace {

// galore_batch_rows() must not depend on the choice.
RunConfig with_rows(const RunConfig& config, int64_t rows) {
  RunConfig chosen = with_micro_batch(config, rows);
  chosen.eval.galore_batch_rows = galore_batch_rows(config);
  return chosen;
}

// `rows`: from largest_micro_batch().
ChosenRows automatic(const RunConfig& config, const Communicator& ranks, const FreeMemory& memory,
                     int64_t rows) {
  if (rows == 0) return {with_rows(config, 1), "the fewest"};
  const bool whole = micro_batches_of(config.batch, rows, ranks.size()) == 1;
  const std::string_view step = ranks.is_single() ? "a whole step" : "a rank's rows of a step";
  if (!memory.known())
    return {with_rows(config, rows), fmt::format("{}; free memory unknown", step)};
  if (whole) return {with_rows(config, rows), fmt::format("{} at once, which fits", step)};
  return {
      with_rows(config, rows),
      fmt::format("the most that leave {} of {} free{}", format_bytes(double(head_room(memory))),
                  format_bytes(double(memory.bytes)), ranks.is_single() ? "" : " on every rank")};
}

// Returns whether the recorded number replaces a choice.
bool applies(const std::optional<RecordedRows>& recorded, const RunConfig& config) {
  return recorded && config.batch.micro_batch_rows == 0 &&
         recorded->step == config.batch.rows_per_step();
}

}  // namespace

ChosenRows choose_rows(const RunConfig& config, Device& device, const Communicator& ranks,
                       const FreeMemory& memory) {
  if (config.batch.micro_batch_rows > 0) return {config};
  return automatic(config, ranks, memory, largest_micro_batch(config, device, ranks, memory));
}

// All ranks make the same calls whatever their configs: differing configs are detected later.
ChosenRows choose_rows_together(const RunConfig& config, Device& device, Communicator& ranks,
                                const FreeMemory& memory,
                                const std::optional<RecordedRows>& recorded) {
  const int64_t fixed =
      applies(recorded, config) ? recorded->micro_batch : config.batch.micro_batch_rows;
  int64_t most = config.batch.rows_per_step();
  while (true) {
    const int64_t mine =
        fixed > 0 ? fixed : largest_micro_batch(config, device, ranks, memory, most);
    const std::vector<int64_t> all = ranks.gather_numbers(mine);
    const auto [least, largest] = std::ranges::minmax(all);
    const bool agreed = least == largest || least >= most;
    most = least;
    if (agreed) break;
  }
  if (!applies(recorded, config))
    return fixed > 0 ? ChosenRows{config} : automatic(config, ranks, memory, most);
  ChosenRows chosen{with_micro_batch(config, fixed), "as the checkpoint was saved"};
  if (config.eval.galore_batch_rows == 0)
    chosen.config.eval.galore_batch_rows =
        recorded->galore_batch > 0 ? recorded->galore_batch : galore_batch_rows(config);
  return chosen;
}

RowsOnGpus rows_on_gpus(const RunConfig& config, Device& device, const Communicator& ranks) {
  constexpr std::array<int64_t, 3> kGigabytes{24, 80, 141};
  const std::unique_ptr<Device> gpu =
      device.backend() == Backend::kCpu ? make_planning_gpu(config.device) : nullptr;
  Device& counting = gpu ? *gpu : device;
  RowsOnGpus rows{.counted_for = counting.backend()};
  for (const int64_t gigabytes : kGigabytes) {
    const FreeMemory memory{.bytes = gigabytes * 1'000'000'000, .backend = Backend::kCuda};
    rows.gpus.push_back({gigabytes, largest_micro_batch(config, counting, ranks, memory)});
  }
  return rows;
}

// --- runs that do not fit ------------------------------------------------------------------------

namespace {

// Returns the number of ranks at which each fits on one such device; 0 if no number does.
int64_t ranks_that_fit(const RunConfig& config, Device& device, const Communicator& ranks) {
  const RunConfig one_row = with_micro_batch(config, 1);
  const int64_t available = device.memory_bytes(),
                whole = planned_memory(one_row, device, ranks).total();
  const int64_t most = std::min<int64_t>(config.batch.rows_per_step(), 1024);
  for (int64_t count = std::max<int64_t>(2, ranks.size()); count <= most; count *= 2) {
    // Planning many ranks is slow: skip counts that could not fit even if all memory were divided.
    if (whole / count * ranks.size() > available) continue;
    if (planned_memory(one_row, device, Communicator::planned(0, count)).total() <= available)
      return count;
  }
  return 0;
}

// Returns the longest row length, shorter by a power of two, of which one row fits; 0 if no
// sensible length does.
int64_t seq_len_that_fits(RunConfig config, Device& device, const Communicator& ranks,
                          const FreeMemory& memory) {
  constexpr int64_t kShortest = 128;
  int64_t& seq_len = config.batch.seq_len;
  while (seq_len % 2 == 0 && seq_len / 2 >= kShortest) {
    seq_len /= 2;
    if (largest_micro_batch(config, device, ranks, memory, 1) > 0) return seq_len;
  }
  return 0;
}

// Suggests a change that would make the run fit.
std::string memory_advice(const RunConfig& config, Device& device, const Communicator& ranks,
                          const FreeMemory& memory) {
  if (const int64_t rows = largest_micro_batch(config, device, ranks, memory))
    return fmt::format("batch.micro_batch_rows={} would fit", rows);
  RunConfig recomputed = config;
  recomputed.train.activation_recompute = ActivationRecompute::kBlock;
  if (const int64_t rows = largest_micro_batch(recomputed, device, ranks, memory))
    return fmt::format("train.activation_recompute=block with batch.micro_batch_rows={} would fit",
                       rows);
  if (const int64_t seq_len = seq_len_that_fits(recomputed, device, ranks, memory))
    return fmt::format(
        "batch.seq_len={} with train.activation_recompute=block and batch.micro_batch_rows=1 would "
        "fit",
        seq_len);
  const int64_t enough = ranks_that_fit(config, device, ranks);
  return fmt::format("no micro-batch fits: choose a smaller model{}",
                     enough > 0 ? fmt::format(", or {} ranks with {} each", enough,
                                              format_bytes(double(device.memory_bytes())))
                                : "");
}

}  // namespace

void require_memory(const ChosenRows& chosen, Device& device, const Communicator& ranks,
                    const FreeMemory& memory) {
  const RunConfig& config = chosen.config;
  const int64_t needed = planned_memory(config, device, ranks).total();
  if (needed <= memory.bytes) return;
  const std::string rows =
      chosen.reason.empty()
          ? ""
          : fmt::format(" in micro-batches of {} ({})",
                        counted(config.batch.rows_per_micro_batch(), "row"), chosen.reason);
  throw error("this run needs {} of memory{}, {} is available on {}{}; {}",
              format_bytes(double(needed)), rows, format_bytes(double(memory.bytes)), device.name(),
              memory.sharing > 1 ? fmt::format(" for each of {} ranks", memory.sharing) : "",
              memory_advice(config, device, ranks, memory));
}

}  // namespace mpt
