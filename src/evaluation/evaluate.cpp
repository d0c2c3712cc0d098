#include "evaluation/evaluate.h"

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
#include "config/run_copies.h"
#include "config/run_data.h"
#include "core/check.h"
#include "core/io/file_patterns.h"
#include "core/io/file_system.h"
#include "core/progress.h"
#include "data/dataloader.h"
#include "weights/loaded_model.h"

namespace mpt {
namespace {

// Result of evaluating a sequence.
struct RowResult {
  double loss = 0;  // sum over its targets, in nats
  double targets = 0;
  double bytes = 0;    // of the targets' text; NaN if unknown
  double unknown = 0;  // the first target whose bytes are unknown
};

void add_text_bytes(const TextBytes* text, std::span<const int32_t> tokens,
                    std::span<const int32_t> targets, RowResult& row) {
  const auto bytes = text ? text->of_targets(tokens, targets) : std::nullopt;
  row.bytes = bytes ? double(*bytes) : std::nan("");
  if (text && !bytes) row.unknown = text->first_unknown(targets).value();
}

// Evaluates sequences [slice.first, slice.first + slice.rows).
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

// Returns how many sequences of a set are evaluated.
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

// `set`: its name; empty for all sets.
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

// Once per process, not at each evaluation and phase of a run.
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

}  // namespace mpt
