#include "inference/evaluate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numbers>
#include <numeric>
#include <set>
#include <vector>

#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/io/file_system.h"
#include "core/progress.h"
#include "data/dataloader.h"
#include "inference/loaded_model.h"

namespace mpt {
namespace {

// What is known of a sequence after its evaluation.
struct RowResult {
  double loss = 0;  // sum over its targets, in nats
  double targets = 0;
  double bytes = 0;    // of the targets' text; not a number if not known
  double unknown = 0;  // the first target of which they are not
};

void add_text_bytes(const TextBytes* text, std::span<const int32_t> tokens,
                    std::span<const int32_t> targets, RowResult& row) {
  const auto bytes = text ? text->of_targets(tokens, targets) : std::nullopt;
  row.bytes = bytes ? double(*bytes) : std::nan("");
  if (text && !bytes) row.unknown = text->first_unknown(targets).value();
}

// Of sequences [slice.first, slice.first + slice.rows).
std::vector<RowResult> results_of(Llama& model, const ValidationSet& set,
                                  const EvaluationOptions& options, RowSlice slice) {
  Progress progress(
      {.label = set.name.empty() ? "evaluate" : "evaluate " + set.name, .total = slice.rows});
  std::vector<RowResult> results;
  for (int64_t done = 0; done < slice.rows; done += options.rows_per_batch) {
    const Batch batch = read_batch(*set.rows, slice.first + done,
                                   std::min(options.rows_per_batch, slice.rows - done));
    model.evaluate({batch.tokens, batch.targets, batch.document_begin});
    const std::span<const float> losses = model.token_losses();
    for (int64_t row = 0; row < batch.rows; ++row) {
      const auto of_row = [&](auto all) {
        return all.subspan(size_t(row * batch.seq_len), size_t(batch.seq_len));
      };
      const auto loss = of_row(losses);
      results.push_back({.loss = std::accumulate(loss.begin(), loss.end(), 0.0),
                         .targets = double(set.rows->valid_targets(batch.first_sequence + row))});
      add_text_bytes(options.text, of_row(std::span<const int32_t>(batch.tokens)),
                     of_row(std::span<const int32_t>(batch.targets)), results.back());
    }
    progress.update(done + batch.rows);
    if (options.leave && options.leave()) break;
  }
  progress.clear();
  return results;
}

// Gathers every rank's part of `sequences`.
std::vector<RowResult> gathered(Communicator& ranks, std::vector<RowResult> mine,
                                int64_t sequences) {
  const auto most = size_t((sequences + ranks.size() - 1) / ranks.size());
  mine.resize(most);
  std::vector<RowResult> padded(most * size_t(ranks.size())), all;
  ranks.gather_host(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(padded)));
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    const auto first = padded.begin() + rank * std::ssize(mine);
    all.insert(all.end(), first, first + slice_of(sequences, rank, ranks.size()).rows);
  }
  return all;
}

// Of a set that are evaluated.
int64_t sequences_of(const ValidationSet& set, int64_t tokens) {
  const int64_t wanted = (tokens + set.rows->seq_len() - 1) / set.rows->seq_len();
  return std::min(wanted, set.rows->sequences());
}

std::vector<RowResult> evaluate_set(Llama& model, const ValidationSet& set,
                                    const EvaluationOptions& options) {
  const int64_t sequences = sequences_of(set, options.tokens);
  const RowSlice slice = slice_of(sequences, options.ranks.rank(), options.ranks.size());
  std::vector<RowResult> mine;
  EvaluationLeft left;
  try {
    mine = results_of(model, set, options, slice);
  } catch (const std::exception&) {
    left.failure = std::current_exception();
  }
  const std::vector<int64_t> lacking = options.ranks.gather_numbers(slice.rows - std::ssize(mine));
  if (std::ranges::any_of(lacking, [](int64_t rows) { return rows > 0; })) throw left;
  return gathered(options.ranks, std::move(mine), sequences);
}

[[noreturn]] void refuse_without_targets(const std::string& set, int64_t rows) {
  throw error("the validation data{} has no token to predict in its first {} rows",
              set.empty() ? "" : " of " + set, rows);
}

// `set`: its name; empty for all of them.
Evaluation mean_of(std::span<const RowResult> rows, int64_t galore_batch_rows,
                   const std::string& set) {
  std::vector<double> sums;
  std::vector<int64_t> targets;
  double bytes = 0;
  for (const RowResult& row : rows) {
    sums.push_back(row.loss);
    targets.push_back(int64_t(row.targets));
    bytes += row.bytes;
  }
  Evaluation mean{.tokens = std::accumulate(targets.begin(), targets.end(), int64_t{0})};
  if (mean.tokens == 0) refuse_without_targets(set, std::ssize(rows));
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  mean.loss = sum / double(mean.tokens);
  mean.galore_loss = galore_loss(sums, targets, galore_batch_rows);
  if (bytes > 0) mean.bits_per_byte = sum / (std::numbers::ln2 * bytes);
  return mean;
}

// Once in a process, not at each evaluation and phase of a run.
void warn_once(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(message).second) spdlog::warn("{}", message);
}

void warn_of_unknown_text(std::span<const RowResult> rows, const EvaluationOptions& options) {
  if (options.text == nullptr || !options.ranks.is_root()) return;
  const auto row = std::ranges::find_if(
      rows, [](double bytes) { return std::isnan(bytes); }, &RowResult::bytes);
  if (row != rows.end())
    warn_once("bits per byte are not reported: " +
              options.text->why_unknown(int32_t(row->unknown)));
}

}  // namespace

double galore_loss(std::span<const double> loss_sums, std::span<const int64_t> valid_targets,
                   int64_t rows) {
  check(rows > 0 && loss_sums.size() == valid_targets.size(),
        "batches of {} rows of {} losses and {} counts", rows, loss_sums.size(),
        valid_targets.size());
  double means = 0;
  int64_t batches = 0;
  for (size_t first = 0; first < loss_sums.size(); first += size_t(rows)) {
    const size_t count = std::min(size_t(rows), loss_sums.size() - first);
    const auto losses = loss_sums.subspan(first, count);
    const auto targets = valid_targets.subspan(first, count);
    const int64_t tokens = std::accumulate(targets.begin(), targets.end(), int64_t{0});
    if (tokens == 0) continue;
    means += std::accumulate(losses.begin(), losses.end(), 0.0) / double(tokens);
    ++batches;
  }
  return means / double(batches + 1);
}

void check_validation_data(std::span<const ValidationSet> sets, int64_t tokens,
                           const Communicator& ranks) {
  for (const ValidationSet& set : sets) {
    const int64_t sequences = sequences_of(set, tokens);
    const RowSlice slice = slice_of(sequences, ranks.rank(), ranks.size());
    for (int64_t row = slice.first; row < slice.first + slice.rows; ++row)
      static_cast<void>(read_batch(*set.rows, row, 1));
    int64_t targets = 0;
    for (int64_t row = 0; row < sequences && targets == 0; ++row)
      targets += set.rows->valid_targets(row);
    if (targets == 0) refuse_without_targets(set.name, sequences);
  }
}

ValidationResult evaluate(Llama& model, std::span<const ValidationSet> sets,
                          const EvaluationOptions& options) {
  ValidationResult result;
  std::vector<RowResult> all;
  try {
    for (const ValidationSet& set : sets) {
      const std::vector<RowResult> rows = evaluate_set(model, set, options);
      all.insert(all.end(), rows.begin(), rows.end());
      if (set.name.empty()) continue;
      result.sets.push_back({set.name, mean_of(rows, options.galore_batch_rows, set.name)});
    }
  } catch (const EvaluationLeft&) {
    model.end_evaluation();
    throw;
  }
  model.end_evaluation();
  result.all = mean_of(all, options.galore_batch_rows, "");
  warn_of_unknown_text(all, options);
  return result;
}

namespace {

nlohmann::ordered_json json_of(const Evaluation& mean, const std::string& prefix) {
  nlohmann::ordered_json json{{prefix + "loss", mean.loss},
                              {prefix + "loss_family", mean.galore_loss},
                              {prefix + "perplexity", mean.perplexity()}};
  if (mean.bits_per_byte) json[prefix + "bits_per_byte"] = *mean.bits_per_byte;
  json[prefix + "tokens"] = mean.tokens;
  return json;
}

}  // namespace

nlohmann::ordered_json validation_json(const ValidationResult& result) {
  nlohmann::ordered_json json = json_of(result.all, "val_");
  for (const auto& [name, mean] : result.sets) json["validation"][name] = json_of(mean, "");
  return json;
}

TextBytes text_of_data(const DataConfig& data) {
  const std::string tokenizer = tokenizer_of(data);
  return tokenizer.empty() ? TextBytes(
                                 "no tokenizer of the data is known; name it with "
                                 "data.tokenizer")
                           : TextBytes::of(Tokenizer::load(tokenizer));
}

namespace {

// Checks that shards named by the run exist; problems of other shards are reported when they are
// opened.
void require_validation_files(const LoadedModel& model) {
  for (const auto& [name, files] : model.config.data.validation)
    for (const std::string& pattern : files)
      if (!names_a_file(pattern))
        throw error(
            "{}: data.validation of its run, {}, was not found (from {}); name the shards with "
            "--data",
            model.checkpoint, pattern, std::filesystem::current_path().string());
}

RunConfig with_options(const LoadedModel& model, const EvaluateCheckpointOptions& options) {
  RunConfig config = model.config;
  for (const std::string& pattern : options.data)
    if (!names_a_file(pattern))
      throw error("--data {}: no such file, and no file matches it as a glob", pattern);
  if (options.data.empty())
    require_validation_files(model);
  else
    config.data.validation = {{"", options.data}};
  config.eval.tokens = options.tokens.value_or(config.eval.tokens);
  const std::string tokenizer = find_tokenizer(model, "").path;
  if (tokenizer.empty() && !config.data.tokenizer.empty())
    spdlog::warn("{} no longer exists: the data is not checked against the run's tokenizer",
                 config.data.tokenizer);
  config.data.tokenizer = tokenizer;
  // Computed before another micro-batch, on which it must not depend.
  config.eval.galore_batch_rows =
      options.galore_batch_rows > 0 ? options.galore_batch_rows : galore_batch_rows(config);
  if (options.micro_batch_rows > 0) config.batch.micro_batch_rows = options.micro_batch_rows;
  return config;
}

void check_options(const EvaluateCheckpointOptions& options) {
  if (options.tokens.value_or(1) < 1)
    throw error("tokens is {}; expected 1 or more", *options.tokens);
  if (options.micro_batch_rows < 0)
    throw error("micro_batch_rows is {}; expected 0 (as in training) or more",
                options.micro_batch_rows);
  if (options.galore_batch_rows < 0)
    throw error("galore_batch_rows is {}; expected 0 (as in the run) or more",
                options.galore_batch_rows);
}

CheckpointEvaluation evaluate_model(FileSystem& fs, const LoadedModel& model,
                                    const EvaluateCheckpointOptions& options) {
  const RunConfig config = with_options(model, options);
  const std::vector<ValidationSet> sets = open_validation_data(config);
  if (sets.empty())
    throw error("{}: its config has no data.validation; name shards to evaluate on with --data",
                model.checkpoint);
  int64_t most = 1;
  for (const ValidationSet& set : sets) most = std::max(most, set.rows->sequences());
  const int64_t rows = std::min(config.batch.rows_per_micro_batch(), most);
  const BatchShape shape{rows, config.batch.seq_len};
  Llama llama(
      config.model,
      {.micro_batch = shape,
       .storage = model.storage(),
       .loss_chunk_rows = default_loss_chunk_rows(config.model, shape, model.device->backend()),
       .keep = Keep::kNothing,
       .fp8 = fp8_of(config.precision),
       .multiply = multiply_of(config.precision),
       .weight_codes = weight_codes_of(config.device, model.device->backend()),
       .attention = config.data.attention},
      *model.weights, *model.device, *model.allocator);
  if (const std::vector<NamedTensor> scales = llama.named_states(); !scales.empty())
    load_part_of_verified_checkpoint(fs, model.checkpoint, whole_parts(scales), *model.device);
  llama.update_casts();
  const TextBytes text = text_of_data(config.data);
  const EvaluationOptions how{.rows_per_batch = rows,
                              .tokens = config.eval.tokens,
                              .galore_batch_rows = galore_batch_rows(config),
                              .text = &text};
  try {
    return {model.checkpoint, model.step, evaluate(llama, sets, how)};
  } catch (const EvaluationLeft& left) {
    std::rethrow_exception(left.failure);
  }
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options) {
  check_options(options);
  return with_checkpoint(fs, options.checkpoint, [&](const std::string& checkpoint) {
    return evaluate_model(
        fs, load_verified_model(fs, checkpoint, options.device, ModelUse::kEvaluate), options);
  });
}

}  // namespace mpt
