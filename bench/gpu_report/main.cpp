// gpu_report: measures a machine, whole training steps and the optimizer, and prints the results as
// JSON.
//
//   gpu_report --device cuda machine
//   gpu_report --device cuda step --config configs/60m_bf16.json --tokens-per-step 131072
//              --seq-len 1024
//   gpu_report --device cuda pair --config configs/350m_bf16.json --config configs/350m_fp8.json
//   gpu_report --device cuda optimizer --format nvfp4 --rule m_plus_adam --elements 268435456
//
// Works on any backend; on a CPU with suitable sizes. scripts/gpu_check.sh runs it and compares the
// figures with their goals.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/console.h"
#include "cli/options.h"
#include "cli/waiting_threads.h"
#include "core/io/file_system.h"
#include "machine_rates.h"
#include "step_bench.h"
#include "update_rate.h"

namespace mpt {
namespace {

struct Arguments {
  std::string device = "cpu", output;
  Effort effort;
  MachineSize size;
  std::vector<std::string> configs, overrides;
  StepShape shape{.micro_batch_rows = kAutomaticRows};
  StepEffort steps;
  UpdateCase update;
};

void add_step_options(CLI::App& mode, Arguments& a) {
  add_texts(mode, "--config", a.configs, "configs of the models")->required();
  add_texts(mode, "--set", a.overrides,
            "key.path=value, overrides the config files; may be repeated");
  add_count(mode, "--tokens-per-step", a.shape.tokens_per_step, {}, "0: as in the config");
  add_count(mode, "--seq-len", a.shape.seq_len, {}, "0: as in the config");
  add_count(mode, "--micro-batch-rows", a.shape.micro_batch_rows, {.least = kAutomaticRows},
            "-1: as many as fit; 0: as in the config");
  add_count(mode, "--warm-up", a.steps.warm_up, {.least = 3},
            "warm-up steps before the first measured one");
  add_count(mode, "--steps", a.steps.steps, {.least = 1}, "measured steps in total");
  add_count(mode, "--rounds", a.steps.blocks, {.least = 1}, "blocks of measured steps");
}

void add_machine_options(CLI::App& mode, Arguments& a) {
  add_count(mode, "--gemm-size", a.size.gemm, {},
            "rows and columns of the matrices; 0: chosen for the device");
  add_count(mode, "--copy-bytes", a.size.copy_bytes, {},
            "size of a buffer; 0: chosen for the device");
}

MachineSize size_of(const Arguments& a, Device& device) {
  const MachineSize suited = default_size(device);
  return {.gemm = a.size.gemm > 0 ? a.size.gemm : suited.gemm,
          .copy_bytes = a.size.copy_bytes > 0 ? a.size.copy_bytes : suited.copy_bytes};
}

std::vector<StepConfig> step_configs(const Arguments& a) {
  std::vector<StepConfig> configs;
  for (const std::string& path : a.configs)
    configs.push_back({.path = path,
                       .overrides = a.overrides,
                       .shape = a.shape,
                       .device = a.device,
                       .models = int64_t(a.configs.size())});
  return configs;
}

Json run_machine(const Arguments& a) {
  const std::unique_ptr<Device> device = device_named(a.device);
  return measure_machine(*device, size_of(a, *device), a.effort);
}

// Runs one config after another: each model has the device to itself, because the memory of the
// previous one has been freed.
Json run_step(const Arguments& a) {
  double rate = 0;
  {
    const std::unique_ptr<Device> device = device_named(a.device);
    rate = gemm_rate(*device, GemmKind::kBF16, size_of(a, *device).gemm, a.effort).median();
  }
  Json all = Json::array();
  for (StepConfig config : step_configs(a)) {
    config.models = 1;
    all.push_back(measure_steps(config, a.steps, rate));
  }
  return all;
}

Json run_optimizer(const Arguments& a) {
  const std::unique_ptr<Device> device = device_named(a.device);
  const double copy = copy_rate(*device, size_of(a, *device).copy_bytes, a.effort).median();
  return measure_update(*device, a.update, a.effort, copy);
}

void print(const Arguments& a, const Json& result) {
  const std::string text = result.dump(2) + "\n";
  if (a.output.empty())
    std::fputs(text.c_str(), stdout);
  else
    write_file_atomically(posix_file_system(), a.output, bytes_of(text));
}

int run(int argc, char** argv) {
  Arguments a;
  CLI::App program("Measures a machine, whole training steps and the optimizer; prints JSON.",
                   "gpu_report");
  program.require_subcommand(1);
  program.fallthrough();
  add_text(program, "--device", a.device, "cpu or cuda")->capture_default_str();
  add_text(program, "--output", a.output, "file to write instead of standard output");
  add_real(program, "--seconds", a.effort.seconds_per_block, {.least = 1e-3, .most = 60},
           "minimum seconds per block of GEMMs, copies or updates");
  CLI::App* machine = program.add_subcommand("machine", "Rates of copies and GEMMs");
  add_machine_options(*machine, a);
  machine->callback([&a] { print(a, run_machine(a)); });
  CLI::App* step = program.add_subcommand("step", "Whole training steps, one config after another");
  add_step_options(*step, a);
  add_machine_options(*step, a);
  step->callback([&a] { print(a, run_step(a)); });
  CLI::App* pair =
      program.add_subcommand("pair", "Whole training steps of several configs, alternating");
  add_step_options(*pair, a);
  pair->callback([&a] { print(a, measure_in_turn(step_configs(a), a.steps)); });
  CLI::App* optimizer = program.add_subcommand("optimizer", "Optimizer updates alone");
  add_choice(*optimizer, "--format", a.update.format, "format of the weights");
  optimizer->add_option("--rule", a.update.rule, "optimizer: " + all_rule_names())
      ->capture_default_str()
      ->check(CLI::IsMember(rule_names()));
  add_choice(*optimizer, "--writeback", a.update.weight_rounding, "rounding of the weights");
  add_choice(*optimizer, "--state-rounding", a.update.state_rounding, "rounding of bf16 states");
  add_count(*optimizer, "--elements", a.update.elements, {.least = 1}, "minimum number of weights");
  add_machine_options(*optimizer, a);
  optimizer->callback([&a] { print(a, run_optimizer(a)); });
  CLI11_PARSE(program, argc, argv);
  return 0;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  mpt::let_waiting_threads_sleep(argv);
  mpt::log_to_standard_error();  // standard output is JSON
  try {
    return mpt::run(argc, argv);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "gpu_report: error: {}\n", failure.what());
    return 1;
  }
}
