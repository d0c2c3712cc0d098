// The optimizer's part of a step: updates by every rule in every weight format, the gradient norm,
// and the decoding of scaled weights for GEMMs. Each for all matrices of the linear layers of shape
// E at once.
//
//   GOMP_SPINCOUNT=2000 update_bench --benchmark_filter=m_plus_adam/nvfp4
// Names: update/<rule>/<weight format>/<rounding of the written weight>; states and gradients are
// fp32 with fp32 weights and bf16 otherwise, and apollo_e is M+Adam with the projected second
// moment of a whole matrix. Counters: GB/s of the bytes that must move at least (weights, scales,
// residuals and states are read and written, gradients are read), and the percentage of the rate of
// memory read and written in place.
#include "gpu_report/benchmarked_rule.h"
#include "model/parameters.h"
#include "operation.h"
#include "optim/optimizer.h"
#include "shapes.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

std::vector<ParamSpec> matrices() {
  std::vector<ParamSpec> specs = llama_parameters(kShapes.back().model());
  std::erase_if(specs, [](const ParamSpec& spec) { return spec.kind != ParamKind::kLinear; });
  for (size_t i = 0; i < specs.size(); ++i) specs[i].tensor_id = int64_t(i);
  return specs;
}

Format format_beside(WeightFormat weights) {
  return weights == WeightFormat::kF32 ? Format::kF32 : Format::kBF16;
}

std::shared_ptr<WeightStore> make_weights(Workbench& w, WeightFormat format, LinearCopies copies) {
  const DType others = dtype_of(format_beside(format));
  auto weights =
      std::make_shared<WeightStore>(matrices(),
                                    WeightOptions{.storage = others,
                                                  .gradient = others,
                                                  .linears = WeightEncoding{.format = format},
                                                  .linear_copies = copies},
                                    w.device(), w.allocator());
  initialize_weights(*weights, 0.02, 1, w.device());
  return weights;
}

// Bytes of the stored numbers, scales included.
int64_t bytes_of_weights(const WeightStore& weights) {
  int64_t bytes = 0;
  for (size_t i = 0; i < weights.specs().size(); ++i)
    bytes += weights.master(int64_t(i)).logical_bytes();
  return bytes;
}

int64_t bytes_of_gradients(const WeightStore& weights) {
  int64_t bytes = 0;
  for (size_t i = 0; i < weights.specs().size(); ++i) bytes += weights.gradient(int64_t(i)).bytes();
  return bytes;
}

// A model's matrices with their optimizer and gradients.
struct Update {
  std::shared_ptr<WeightStore> weights;
  Optimizer optimizer;
  int64_t t = kStepsBefore;

  Update(Workbench& w, const OptimizerConfig& config, WeightFormat format)
      : weights(make_weights(w, format, LinearCopies::kNone)),
        optimizer(config, {.state = format_beside(format), .seed = 1}, update_targets(*weights),
                  w.device(), w.allocator()) {
    optimizer.weights_initialized();
    for (size_t i = 0; i < weights->specs().size(); ++i)
      Workbench::filled(weights->gradient(int64_t(i)));
    step();  // touches the states for the first time
  }
  void step() { optimizer.step({.t = ++t}); }
  [[nodiscard]] double bytes_moved() const {
    return double(2 * (bytes_of_weights(*weights) + optimizer.optimizer_state_bytes()) +
                  bytes_of_gradients(*weights));
  }
};

Operation update(Workbench& w, const OptimizerConfig& config, WeightFormat format) {
  const auto problem = std::make_shared<Update>(w, config, format);
  return {.call = [problem] { problem->step(); }, .bytes = problem->bytes_moved()};
}

Operation grad_norm(Workbench& w, WeightFormat format) {
  const auto problem = std::make_shared<Update>(w, OptimizerConfig{}, format);
  return {.call = [problem] { benchmark::DoNotOptimize(problem->optimizer.grad_norm()); },
          .bytes = double(bytes_of_gradients(*problem->weights))};
}

Operation decode(Workbench& w, WeightFormat format) {
  const std::shared_ptr<WeightStore> weights = make_weights(w, format, LinearCopies::kDecoded);
  const int64_t elements = total_elements(weights->specs());
  return {.call = [weights] { weights->decode_weights(); },
          .bytes = double(bytes_of_weights(*weights) + elements * size_of(DType::kBF16))};
}

// --- the list ------------------------------------------------------------------------------------

struct NamedRule {
  std::string name;
  RuleConfig rule;
};
// Every rule, and M+Adam with Apollo-E.
std::vector<NamedRule> rules() {
  constexpr Rates kRates{.additive = 1e-5, .multiplicative = 1e-5};
  std::vector<NamedRule> all;
  Rules::each([&]<class R>(std::type_identity<R>) {
    all.push_back({std::string(R::Config::kName), benchmarked_rule(R::Config::kName, kRates)});
  });
  all.push_back({"apollo_e", benchmarked_rule("m_plus_adam", kRates)});
  keys_of<MPlusAdam::Config>(all.back().rule).apollo_e = ApolloE::kMini;
  return all;
}

// fp32 weights lose too little to rounding to be worth drawing for, and residuals exist only with
// bf16.
std::vector<WeightRounding> roundings_of(WeightFormat format) {
  if (format == WeightFormat::kF32) return {WeightRounding::kNearest};
  if (format == WeightFormat::kBF16)
    return {WeightRounding::kNearest, WeightRounding::kStochastic, WeightRounding::kKahan};
  return {WeightRounding::kNearest, WeightRounding::kStochastic};
}

void register_all() {
  constexpr std::array kFormats{WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kBlockFp8,
                                WeightFormat::kNvfp4, WeightFormat::kMxfp8};
  for (const NamedRule& rule : rules())
    for (const WeightFormat format : kFormats)
      for (const WeightRounding weight_rounding : roundings_of(format)) {
        const OptimizerConfig config{.rule = rule.rule, .weight_rounding = weight_rounding};
        add_operation(
            fmt::format("update/{}/{}/{}", rule.name, name_of(format), name_of(weight_rounding)),
            [config, format](Workbench& w) { return update(w, config, format); });
      }
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16})
    add_operation(fmt::format("grad_norm/{}", name_of(format)),
                  [format](Workbench& w) { return grad_norm(w, format); });
  for (const WeightFormat format :
       {WeightFormat::kBlockFp8, WeightFormat::kNvfp4, WeightFormat::kMxfp8})
    add_operation(fmt::format("decode/{}", name_of(format)),
                  [format](Workbench& w) { return decode(w, format); });
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  mpt::register_all();
  return mpt::run_operations(argc, argv);
}
