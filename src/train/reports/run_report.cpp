#include "train/reports/run_report.h"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "config/batch_plan.h"
#include "config/run_data.h"
#include "core/check.h"
#include "core/process_memory.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "model/parameters.h"
#include "train/resources/memory_fit.h"
#include "train/resources/storage_bytes.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

// In the order of the table of `mpretrain plan`.
constexpr std::array kMemoryPurposes{kWeightMemory,         kComputeWeightMemory, kGradientMemory,
                                     kOptimizerStateMemory, kActivationMemory,    kLogitMemory,
                                     kScratchMemory,        kDataMemory,          kWeightEmaMemory};

std::vector<MemoryUse::Entry> by_purpose(const MemoryUse& use) {
  for (const auto& [purpose, bytes] : use.entries())
    check(std::ranges::find(kMemoryPurposes, purpose) != kMemoryPurposes.end(),
          "{} of memory for {}, which plans do not list", format_bytes(double(bytes)),
          purpose.name);
  std::vector<MemoryUse::Entry> entries;
  for (const MemoryPurpose& purpose : kMemoryPurposes)
    if (purpose != kWeightEmaMemory || use.of(purpose) > 0)
      entries.push_back({purpose, use.of(purpose)});
  return entries;
}

std::string parameters_by_kind(const std::vector<ParamSpec>& specs) {
  std::array<int64_t, EnumNames<ParamKind>::kNames.size()> elements{};
  for (const ParamSpec& spec : specs) elements[size_t(spec.kind)] += spec.elements();
  std::string text = row("parameters", "{}", grouped(total_elements(specs)));
  for (size_t kind = 0; kind < elements.size(); ++kind)
    text +=
        row(fmt::format("  {}", EnumNames<ParamKind>::kNames[kind]), "{}", grouped(elements[kind]));
  return text;
}

std::string weight_rounding_text(const RunConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  if (o.weight_rounding == WeightRounding::kStochastic &&
      config.precision.weights == plain_format(DType::kF32))
    return "stochastic (fp32 weights are stored as they are)";
  if (o.weight_rounding == WeightRounding::kKahan)
    return fmt::format("kahan ({})", name_of(o.kahan_variant));
  const bool fed_back = o.error_feedback != ErrorFeedbackMode::kOff;
  return fmt::format("{}{}", name_of(o.weight_rounding),
                     fed_back ? ", errors fed back through the momentum" : "");
}

std::string optimizer_line(const RunConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  const auto projection = projection_options(o.rule);
  const std::string apollo =
      projection ? fmt::format(", Apollo-E {} of rank {}, renewed every {} updates",
                               name_of(projection->sharing), projection->rank, projection->gap)
                 : "";
  return fmt::format("{}, {}{}, weights rounded: {}", rule_name(o.rule), describe(o.rule), apollo,
                     weight_rounding_text(config));
}

std::string weights_text(const PrecisionConfig& p) {
  if (!is_scaled(p.weights)) return std::string(name_of(p.weights));
  return fmt::format("{} ({}; embedding, norms and head {})", name_of(p.weights),
                     details_of(linear_encoding(p)), name_of(unscaled_format(p.weights)));
}

std::string compute_text(const PrecisionConfig& p) {
  if (p.compute != ComputeFormat::kFp8) return std::string(name_of(p.compute));
  const std::string history =
      p.fp8_recipe == Fp8Recipe::kDelayed
          ? fmt::format(", {} of {} amaxes", name_of(p.fp8_amax_algo), p.fp8_history)
          : "";
  return fmt::format("fp8 (linear layers{}; {} scaling{}; q,k,v and gate,up cast as one)",
                     p.fp8_lm_head ? " and head" : "", name_of(p.fp8_recipe), history);
}

std::string state_text(const PrecisionConfig& p) {
  const std::string rounding = p.state_rounding == Rounding::kStochastic ? " (stochastic)" : "";
  return std::string(name_of(p.optimizer_state)) +
         (p.state_update == StateUpdate::kPerOp ? " (per_op)" : rounding);
}

// Returns a line of the storage table: nominal and logical bytes per parameter, logical and
// allocated in total.
std::string bytes_row(std::string_view label, double nominal, int64_t logical, int64_t allocated,
                      double parameters) {
  return row(label, "{:>8.4f} {:>9} {:>16} {:>18}", nominal,
             logical > 0 ? fmt::format("{:.4f}", double(logical) / parameters) : "",
             logical > 0 ? grouped(logical) : "", grouped(allocated));
}

std::string storage_table(const RunConfig& config, Device& device) {
  const StorageBytes b = storage_bytes(config, device);
  const auto parameters = double(parameter_count(config.model));
  std::string text = "storage\n" + row("", "{:>8} {:>9} {:>16} {:>18}", "nominal", "logical",
                                       "logical bytes", "allocated bytes");
  text +=
      bytes_row("weights", b.nominal_weights, b.logical_weights, b.allocated_weights, parameters);
  text += bytes_row("optimizer state", b.nominal_states, b.logical_states, b.allocated_states,
                    parameters);
  text += bytes_row("gradient", b.nominal_gradient, 0, b.allocated_gradients, parameters);
  text += bytes_row("persistent", b.nominal_persistent(), b.logical_weights + b.logical_states,
                    b.allocated_weights + b.allocated_states, parameters);
  text += row("with gradient", "{:>8.4f}", b.nominal_persistent() + b.nominal_gradient);
  return text;
}

}  // namespace

std::vector<CorpusEpochs> epochs_of(const RunConfig& config, const Mixture& data) {
  const int64_t rows = rows_of_steps(config, total_steps(config));
  std::vector<CorpusEpochs> corpora;
  for (const Corpus& corpus : data.corpora())
    corpora.push_back({corpus.name, data.epochs(corpus, rows),
                       double(data.order().rows_of(corpus.name, rows)) / double(rows)});
  return corpora;
}

std::string epochs_text(const std::vector<CorpusEpochs>& corpora) {
  if (corpora.size() == 1) return fmt::format("{:.2f} epochs", corpora.front().epochs);
  std::vector<std::string> texts;
  for (const CorpusEpochs& one : corpora)
    texts.push_back(fmt::format("{} {:.1f} %{}, {:.2f} epochs", one.corpus, 100 * one.part_of_rows,
                                texts.empty() ? " of the rows" : "", one.epochs));
  return fmt::format("{} corpora: {}", corpora.size(), fmt::join(texts, "; "));
}

std::string grouped(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

namespace {

std::string of_keys(const LlamaConfig& m) {
  std::string text;
  if (m.key_value_heads() != m.num_attention_heads)
    text += fmt::format(" over {} of keys", m.key_value_heads());
  if (m.qk_norm) text += ", normed";
  return text;
}

// "1 to step 800: weights nvfp4, GEMMs fp8, M+Adam, 8,192 tokens a step; 2 to step …"
std::string phases_text(const RunConfig& config) {
  std::vector<std::string> texts;
  for (const RunPhase& phase : run_phases(config))
    texts.push_back(
        fmt::format("{} to step {}: weights {}, GEMMs {}, {}, {} tokens a step", texts.size() + 1,
                    phase.last_step, name_of(phase.config.precision.weights),
                    name_of(phase.config.precision.compute), rule_name(phase.config.optimizer.rule),
                    grouped(phase.config.batch.tokens_per_step)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

std::string model_report(const RunConfig& config) {
  const LlamaConfig& m = config.model;
  const BatchConfig& b = config.batch;
  const std::vector<ParamSpec> specs = llama_parameters(m);
  const int64_t steps = total_steps(config);
  std::string text = "model\n";
  text += row("shape",
              "hidden {}, intermediate {} (stored {}), layers {}, heads {} x {}{}, vocabulary {}{}",
              m.hidden_size, m.intermediate_size, padded_intermediate_size(m), m.num_hidden_layers,
              m.num_attention_heads, m.head_dim(), of_keys(m), m.vocab_size,
              m.tie_word_embeddings ? ", embedding and head tied" : "");
  text += parameters_by_kind(specs);
  text += row("weights", "{}", weights_text(config.precision));
  text += row("compute", "{}", compute_text(config.precision));
  text += row("states, gradient", "{}, {}", state_text(config.precision),
              name_of(config.precision.gradient));
  text += row("optimizer", "{}", optimizer_line(config));
  text += row("step", "{} tokens = {} rows of {} in {} of {}", grouped(b.tokens_per_step),
              b.rows_per_step(), b.seq_len, counted(b.micro_batches(), "micro-batch", "es"),
              b.rows_per_micro_batch());
  text += row("run", "{} steps, {} tokens, {:.1f} per parameter", grouped(steps),
              grouped(total_tokens(config)),
              double(total_tokens(config)) / double(total_elements(specs)));
  if (!config.phases.empty()) text += row("phases", "{}", phases_text(config));
  return text;
}

namespace {

// Memory of the process itself; on CPUs it comes from the same memory as the buffers.
int64_t process_bytes(const Device& device) {
  return device.backend() == Backend::kCpu ? resident_bytes() : 0;
}

std::string available_memory(const Device& device) {
  const FreeMemory memory = free_memory(device);
  return memory.known() ? format_bytes(double(memory.bytes)) : "unknown on this machine";
}

}  // namespace

std::string device_report(const RunConfig& config, Device& device, const Communicator& ranks) {
  const std::string attention = attention_in_use(config, device, ranks.size());
  return "device\n" + row("name", "{}", device.name()) + row("GEMMs", "{}", device.libraries()) +
         (attention.empty() ? "" : row("attention", "{}", attention)) +
         row("memory available", "{}", available_memory(device));
}

std::string ranks_report(const RunConfig& config, Device& device, const Communicator& ranks) {
  const BatchPlan step = batch_plan(config.batch, ranks.rank(), ranks.size());
  const ExchangeVolume volume = exchange_plan(config, device, ranks).volume;
  std::string text = "ranks\n";
  text += row("number", "{}{}", ranks.size(),
              ranks.name().empty() ? "" : fmt::format(", via {}", ranks.name()));
  text += row("step per rank", "{} to {} rows in {} of {}",
              config.batch.rows_per_step() / ranks.size(), step.most_rows,
              counted(step.most_micro_batches, "micro-batch", "es"), step.micro_batch_rows);
  text += row("optimizer states", "{}",
              config.distributed.sharding == Sharding::kOptimizer ? "sharded: its own update blocks"
                                                                  : "all");
  text += row("sends per step", "{}: gradients {} ({}), weights {} (as stored), sums and scales {}",
              format_bytes(double(volume.total())), format_bytes(double(volume.gradients)),
              name_of(config.distributed.gradient_reduce), format_bytes(double(volume.weights)),
              format_bytes(double(volume.small())));
  return text;
}

std::string memory_report(const RunConfig& config, Device& device, const Communicator& ranks) {
  const MemoryUse use = planned_memory(config, device, ranks);
  const auto parameters = double(parameter_count(config.model));
  std::string text =
      storage_table(config, device) + (ranks.is_single() ? "memory\n" : "memory per rank\n");
  for (const auto& [purpose, taken] : by_purpose(use)) {
    const auto bytes = double(taken);
    text += row(purpose.name, "{:>12}   {:8.3f} bytes/parameter", format_bytes(bytes),
                bytes / parameters);
  }
  text += row("total", "{:>12}   available: {}", format_bytes(double(use.total())),
              available_memory(device));
  if (const int64_t process = process_bytes(device))
    text += row("process itself", "{:>12}   program and libraries", format_bytes(double(process)));
  const int64_t rows = batch_plan(config.batch, ranks.rank(), ranks.size()).micro_batch_rows;
  const MemoryUse one = planned_memory(with_micro_batch(config, 1), device, ranks);
  if (rows > 1)
    text += row("per row of the batch", "{:>12}",
                format_bytes(double(use.total() - one.total()) / double(rows - 1)));
  if (const FreeMemory memory = free_memory(device, ranks_sharing(device, ranks)); memory.known())
    text += row("largest micro-batch", "{:>12} of the {} rows of a step",
                largest_micro_batch(config, device, ranks, memory), config.batch.rows_per_step());
  return text;
}

std::string plan_report(const RunConfig& config, Device& device, const Communicator& ranks) {
  return model_report(config) + device_report(config, device, ranks) +
         (ranks.is_single() ? "" : ranks_report(config, device, ranks)) +
         memory_report(config, device, ranks);
}

namespace {

nlohmann::ordered_json parts_json(const PartsSummary& parts) {
  return {{"bytes", parts.bytes},
          {"largest_part_bytes", parts.largest_part_bytes},
          {"memory_bytes", parts.memory_bytes},
          {"spans", parts.spans},
          {"own_spans", parts.own_spans},
          {"cut_spans", parts.cut_spans}};
}

nlohmann::ordered_json exchange_json(const ExchangePlan& plan) {
  nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
  for (const BucketSummary& b : plan.buckets)
    buckets.push_back({{"first_group", b.bucket.first_group},
                       {"groups", b.bucket.groups},
                       {"norm_sums", b.norm_sums},
                       {"reduced", parts_json(b.reduced)},
                       {"gathered", parts_json(b.gathered)}});
  return {{"own_elements", plan.own_elements},
          {"most_elements", plan.most_elements},
          {"buckets", buckets}};
}

nlohmann::ordered_json volume_json(const ExchangeVolume& volume) {
  return {{"gradients", volume.gradients},     {"weights", volume.weights},
          {"sums_and_scales", volume.small()}, {"norm", volume.norm},
          {"losses", volume.losses},           {"scales", volume.scales}};
}

}  // namespace

nlohmann::ordered_json plan_json(const RunConfig& config, Device& device,
                                 const Communicator& ranks) {
  const StorageBytes b = storage_bytes(config, device);
  const MemoryUse use = planned_memory(config, device, ranks);
  nlohmann::ordered_json memory;
  for (const auto& [purpose, bytes] : by_purpose(use)) memory[std::string(purpose.name)] = bytes;
  memory["total"] = use.total();
  nlohmann::ordered_json plan{
      {"name", config.name},
      {"parameters", parameter_count(config.model)},
      {"steps", total_steps(config)},
      {"tokens", total_tokens(config)},
      {"nominal_bytes_per_parameter",
       {{"weights", b.nominal_weights},
        {"optimizer_state", b.nominal_states},
        {"gradient", b.nominal_gradient}}},
      {"logical_bytes", {{"weights", b.logical_weights}, {"optimizer_state", b.logical_states}}},
      {"allocated_bytes", memory},
      {"process_bytes", process_bytes(device)}};
  if (ranks.is_single()) return plan;
  const ExchangePlan exchange = exchange_plan(config, device, ranks);
  plan["ranks"] = ranks.size();
  plan["bytes_sent_per_step"] = volume_json(exchange.volume);
  plan["exchange"] = exchange_json(exchange);
  return plan;
}

nlohmann::ordered_json report_json(const RunConfig& config, Device& device,
                                   const Communicator& ranks, const std::string& program) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  nlohmann::ordered_json report{{"program", program},
                                {"started_at", fmt::format("{:%FT%TZ}", now)},
                                {"device", device.name()},
                                {"gemms", device.libraries()},
                                {"attention", attention_in_use(config, device, ranks.size())},
                                {"ranks", ranks.size()}};
  report["plan"] = plan_json(config, device, ranks);
  report["plan"].erase("exchange");
  return report;
}

// --- first lines of a run ------------------------------------------------------------------------

namespace {

std::string run_line(const RunConfig& config, const RunStart& start) {
  return fmt::format("{}: {} steps, {} tokens; configuration {}; {}", config.name,
                     grouped(total_steps(config)), grouped(total_tokens(config)), start.config,
                     start.place);
}

std::string model_line(const RunConfig& config) {
  const LlamaConfig& m = config.model;
  return fmt::format("model: {} parameters, {} of width {}, vocabulary {}; weights {}, GEMMs {}",
                     grouped(parameter_count(m)), counted(m.num_hidden_layers, "layer"),
                     m.hidden_size, grouped(m.vocab_size), name_of(config.precision.weights),
                     name_of(config.precision.compute));
}

std::string of_optimizer_line(const RunConfig& config) {
  return fmt::format("optimizer: {}, states {}", optimizer_line(config),
                     state_text(config.precision));
}

std::string data_line(const RunConfig& config, const RunStart& start) {
  const std::string validation =
      start.validation.empty()
          ? "none to evaluate on (data.validation is empty)"
          : fmt::format("{} to evaluate on{}", grouped(tokens_of(start.validation)),
                        start.validation.size() == 1
                            ? ""
                            : fmt::format(" in {} sets", start.validation.size()));
  return fmt::format("data: {} tokens to train on, {}; {}; tokenizer {}",
                     grouped(start.training.tokens()),
                     epochs_text(epochs_of(config, start.training)), validation,
                     config.data.tokenizer.empty() ? "not set" : config.data.tokenizer) +
         (config.data.attention == AttentionScope::kDocument ? "; attention within documents" : "");
}

std::string batch_line(const RunConfig& config, const RunStart& start) {
  const BatchConfig& b = config.batch;
  const BatchPlan step = batch_plan(b, start.ranks.rank(), start.ranks.size());
  return fmt::format("batch: {} tokens per step, {} rows of {}{}, in {} of {}{}",
                     grouped(b.tokens_per_step), b.rows_per_step(), b.seq_len,
                     start.ranks.is_single() ? "" : fmt::format(", {} per rank", step.most_rows),
                     counted(step.most_micro_batches, "micro-batch", "es"), step.micro_batch_rows,
                     start.rows.empty() ? "" : fmt::format(" ({})", start.rows));
}

std::string memory_line(const RunConfig& config, Device& device, const RunStart& start) {
  return fmt::format("memory: {} needed{}, {} available",
                     format_bytes(double(planned_memory(config, device, start.ranks).total())),
                     start.ranks.is_single() ? "" : " per rank",
                     format_bytes(double(start.memory.bytes)));
}

std::string device_line(const RunConfig& config, Device& device, const RunStart& start) {
  std::string line = "device: " + device.name();
  if (!start.ranks.is_single())
    line += fmt::format("; {} ranks via {}", start.ranks.size(), start.ranks.name());
  const std::string attention = attention_in_use(config, device, start.ranks.size());
  return attention.empty() ? line : fmt::format("{}; attention by {}", line, attention);
}

}  // namespace

std::vector<std::string> phase_lines(const RunConfig& config, Device& device,
                                     const RunStart& start) {
  return {model_line(config), of_optimizer_line(config), batch_line(config, start),
          memory_line(config, device, start)};
}

std::vector<std::string> start_lines(const RunConfig& config, Device& device,
                                     const RunStart& start) {
  std::vector<std::string> lines{
      run_line(config, start),           model_line(config),
      of_optimizer_line(config),         data_line(config, start),
      batch_line(config, start),         memory_line(config, device, start),
      device_line(config, device, start)};
  if (!config.phases.empty()) lines.push_back("phases: " + phases_text(config));
  return lines;
}

}  // namespace mpt
