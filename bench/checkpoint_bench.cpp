// Checkpoints of a model with its optimizer: saved while nothing else runs, saved during a training
// step, and loaded.
//
//   MPT_BENCH_DIRECTORY=/data checkpoint_bench        on the file system of that directory
//   save/<shape>/<format>              from begin() to the commit: all data on disk, the previous
//                                      checkpoint removed
//   save_beside_step/<shape>/<format>  a step with a save in progress. pause_ms: how long begin()
//                                      and the wait before the update blocked it; step_ms: a step
//                                      without a save, run alternately; slowdown_%: the whole step
//                                      relative to that
//   load/<shape>/<format>              with all hashes checked; the file is in the page cache
// Shapes are those of shapes.h; MB are of a checkpoint; AdamW.
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "checkpoint/checkpoint_saver.h"
#include "config/run_device.h"
#include "optim/rule_list.h"
#include "run_benchmarks.h"
#include "scratch_directory.h"
#include "seconds_of.h"
#include "shapes.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

using benchmark::Counter;

struct Saved {
  const Shape& shape;
  Format format;

  [[nodiscard]] std::string name() const {
    return fmt::format("{}/{}", shape.name, name_of(format));
  }
  [[nodiscard]] RunConfig config() const {
    RunConfig config;
    config.name = shape.name;
    config.model = shape.model();
    config.batch = {
        .seq_len = shape.seq_len, .tokens_per_step = shape.tokens(), .micro_batch_rows = 0};
    const bool wide = format == Format::kF32;
    config.precision.weights = wide ? WeightFormat::kF32 : WeightFormat::kBF16;
    config.precision.compute = wide ? ComputeFormat::kF32 : ComputeFormat::kBF16;
    config.precision.optimizer_state = config.precision.gradient = format;
    config.optimizer.rule = AdamW::Config{{{.lr_additive = 1e-3}}};
    config.device.type = DeviceType::kCpu;
    config.train.steps = 1000;
    return config;
  }
};

// A model in training and its checkpoint directory.
class Run {
 public:
  explicit Run(const Saved& saved)
      : config_(saved.config()),
        device_(make_device(config_.device)),
        allocator_(device_->make_allocator()),
        model_(config_, *device_, *allocator_),
        store_(posix_file_system(), directory_.file("checkpoints"), {.keep_last = 1}),
        saver_(store_, *device_),
        tokens_(size_t(saved.shape.tokens())) {
    initialize_weights(model_.weights, 0.02, 1, *device_);
    model_.weights_changed();
    model_.optimizer.weights_initialized();
    for (size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = int32_t(i * 7919 % size_t(saved.shape.vocab));
    update(1.0f);  // touches the states: pages never written share one page of zeros, fast to save
  }

  // `before_update` is called between backward and the update.
  template <class F>
  void step(const F& before_update) {
    model_.llama.forward_backward(
        {tokens_, tokens_},
        {.gradient_scale = float(1.0 / double(tokens_.size())), .accumulate = Accumulate::kNo});
    model_.llama.finish_gradients();
    const double norm = model_.optimizer.grad_norm();
    before_update();
    update(clip_scale(1.0, norm));
  }
  void begin_save() {
    saver_.begin({.state = {.step = ++saves_, .config = nlohmann::json::object(), .extra = {}},
                  .resting = model_.parts_to_save(),
                  .changing = model_.changing_parts()});
  }
  CheckpointSaver& saver() { return saver_; }
  void load() {
    const std::string newest = store_.list().back().path;
    store_.load(newest, model_.named_tensors(), *device_);
  }

 private:
  void update(float grad_scale) {
    model_.optimizer.step({.t = ++t_, .grad_scale = grad_scale});
    model_.weights_changed();
  }

  ScratchDirectory directory_;
  RunConfig config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  TrainingModel model_;
  CheckpointStore store_;
  CheckpointSaver saver_;
  std::vector<int32_t> tokens_;
  int64_t t_ = 0, saves_ = 0;
};

void count_bytes(benchmark::State& state, double bytes) {
  state.counters["MB"] = bytes * 1e-6;
  state.counters["GB/s"] = {bytes * 1e-9, Counter::kIsIterationInvariantRate};
}

void save(benchmark::State& state, const Saved& saved) {
  Run run(saved);
  int64_t bytes = 0;
  for (auto _ : state) {
    run.begin_save();
    bytes = run.saver().finish()->bytes;
  }
  count_bytes(state, double(bytes));
}

void save_beside_step(benchmark::State& state, const Saved& saved) {
  Run run(saved);
  run.step([] {});  // touches the rest of the memory
  double paused = 0, with_save = 0, without = 0;
  for (auto _ : state) {
    with_save += seconds_of([&] {
      paused += seconds_of([&] { run.begin_save(); });
      run.step([&] { paused += seconds_of([&] { run.saver().before_update(); }); });
    });
    state.PauseTiming();
    run.saver().finish();
    without += seconds_of([&] { run.step([] {}); });
    state.ResumeTiming();
  }
  state.counters["pause_ms"] = {1e3 * paused, Counter::kAvgIterations};
  state.counters["step_ms"] = {1e3 * without, Counter::kAvgIterations};
  state.counters["slowdown_%"] = 100 * (with_save / without - 1);
}

void load(benchmark::State& state, const Saved& saved) {
  Run run(saved);
  run.begin_save();
  const auto bytes = double(run.saver().finish()->bytes);
  for (auto _ : state) run.load();
  count_bytes(state, bytes);
}

void register_all() {
  using Measure = void (*)(benchmark::State&, const Saved&);
  constexpr std::array<std::pair<const char*, Measure>, 3> kMeasures{
      {{"save", save}, {"save_beside_step", save_beside_step}, {"load", load}}};
  const std::array<Saved, 2> saves{
      {{kShapes.front(), Format::kF32}, {kShapes.back(), Format::kBF16}}};
  for (const Saved& saved : saves)
    for (const auto& [name, run] : kMeasures)
      benchmark::RegisterBenchmark(fmt::format("{}/{}", name, saved.name()).c_str(), run, saved)
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) try {
  mpt::register_all();
  return mpt::run_benchmarks(argc, argv, 1.0);
} catch (const mpt::Error& failure) {
  fmt::print(stderr, "checkpoint_bench: {}\n", failure.what());
  return 1;
}
