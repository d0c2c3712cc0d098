#include "train/report.h"

#include <array>

#include <fmt/format.h>

#include "core/check.h"
#include "core/progress.h"
#include "model/parameters.h"
#include "train/run_model.h"

namespace mpt {
namespace {

template <class... Args>
std::string row(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format("  {:<22} {}\n", label, fmt::format(format, std::forward<Args>(args)...));
}

// Thousands separated: 58,073,600.
std::string grouped(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string parameters_by_kind(const std::vector<ParamSpec>& specs) {
  std::array<int64_t, EnumNames<ParamKind>::kNames.size()> elements{};
  for (const ParamSpec& spec : specs) elements[size_t(spec.kind)] += spec.elements();
  std::string text = row("parameters", "{}", grouped(total_elements(specs)));
  for (size_t kind = 0; kind < elements.size(); ++kind)
    text += row(fmt::format("  {}", EnumNames<ParamKind>::kNames[kind]), "{}", grouped(elements[kind]));
  return text;
}

std::string optimizer_line(const RunConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  const std::string rates =
      o.rule == UpdateRule::kMPlusAdam
          ? fmt::format("lr_additive {}, lr_multiplicative {}", o.lr_additive, o.lr_multiplicative)
          : fmt::format("lr {}", o.lr_additive);
  return fmt::format("{}, {}, beta {} {}, eps {}, write-back {}", name_of(o.rule), rates, o.beta1, o.beta2,
                     o.eps, name_of(o.writeback));
}

// Bytes a parameter of persistent storage and of gradient, counted without padding.
std::string bytes_per_parameter(const RunConfig& config) {
  const auto bytes = [](Format format) { return size_of(dtype_of(format)); };
  const auto states = int64_t(state_names(config.optimizer).size());
  const int64_t weights = size_of(activation_dtype(config.precision.compute)),
                state = states * bytes(config.precision.optimizer_state);
  return fmt::format("weights {} + {} states {} = {}, with gradient {}", weights, states, state,
                     weights + state, weights + state + bytes(config.precision.gradient));
}

RunConfig with_micro_batch(const RunConfig& config, int64_t rows) {
  RunConfig changed = config;
  changed.batch.micro_batch_rows = rows;
  return changed;
}

}  // namespace

std::string model_report(const RunConfig& config) {
  const LlamaConfig& m = config.model;
  const BatchConfig& b = config.batch;
  const std::vector<ParamSpec> specs = llama_parameters(m);
  const int64_t steps = total_steps(config);
  std::string text = "model\n";
  text += row("shape", "hidden {}, intermediate {} (stored {}), layers {}, heads {} x {}, vocabulary {}",
              m.hidden_size, m.intermediate_size, padded_intermediate_size(m), m.num_hidden_layers,
              m.num_attention_heads, m.head_dim(), m.vocab_size);
  text += parameters_by_kind(specs);
  text += row("precision", "weights {}, compute {}, optimizer state {}, gradient {}",
              name_of(config.precision.weights), name_of(config.precision.compute),
              name_of(config.precision.optimizer_state), name_of(config.precision.gradient));
  text += row("optimizer", "{}", optimizer_line(config));
  text += row("bytes per parameter", "{}", bytes_per_parameter(config));
  text += row("step", "{} tokens = {} rows of {} in {} micro-batch{} of {}", grouped(b.tokens_per_step),
              b.rows_per_step(), b.seq_len, b.micro_batches(), b.micro_batches() == 1 ? "" : "es",
              b.rows_per_micro_batch());
  text += row("run", "{} steps, {} tokens, {:.1f} per parameter", grouped(steps),
              grouped(steps * b.tokens_per_step),
              double(steps * b.tokens_per_step) / double(total_elements(specs)));
  return text;
}

std::string device_report(Device& device) {
  return "device\n" + row("name", "{}", device.name()) + row("products", "{}", device.libraries()) +
         row("memory available", "{}", format_bytes(double(device.memory_bytes())));
}

std::string memory_report(const RunConfig& config, Device& device) {
  const MemoryUse use = planned_memory(config, device);
  const auto parameters = double(total_elements(llama_parameters(config.model)));
  std::string text = "memory\n";
  for (size_t i = 0; i < EnumNames<Purpose>::kNames.size(); ++i) {
    const auto bytes = double(use.of(static_cast<Purpose>(i)));
    text += row(EnumNames<Purpose>::kNames[i], "{:>12}   {:8.3f} bytes/parameter", format_bytes(bytes),
                bytes / parameters);
  }
  text += row("total", "{:>12}   of {} available", format_bytes(double(use.total())),
              format_bytes(double(device.memory_bytes())));
  const int64_t rows = config.batch.rows_per_micro_batch();
  const MemoryUse one = planned_memory(with_micro_batch(config, 1), device);
  if (rows > 1)
    text += row("per row of the batch", "{:>12}",
                format_bytes(double(use.total() - one.total()) / double(rows - 1)));
  text += row("largest micro-batch", "{:>12} rows of the {} of a step fit",
              largest_micro_batch(config, device), config.batch.rows_per_step());
  return text;
}

int64_t largest_micro_batch(const RunConfig& config, Device& device) {
  const auto fits = [&, available = device.memory_bytes()](int64_t rows) {
    return planned_memory(with_micro_batch(config, rows), device).total() <= available;
  };
  if (!fits(1)) return 0;
  const int64_t rows = config.batch.rows_per_step();
  int64_t parts = 1;
  while (rows % parts != 0 || (parts < rows && !fits(rows / parts))) ++parts;
  return rows / parts;
}

void require_memory(const RunConfig& config, Device& device) {
  const int64_t needed = planned_memory(config, device).total(), available = device.memory_bytes();
  if (needed <= available) return;
  const int64_t rows = largest_micro_batch(config, device);
  throw error("this run needs {} of memory, {} are available on {}; {}", format_bytes(double(needed)),
              format_bytes(double(available)), device.name(),
              rows > 0 ? fmt::format("batch.micro_batch_rows={} would fit", rows)
                       : "no micro-batch fits: choose a smaller model, or train.activation_recompute=block");
}

}  // namespace mpt
