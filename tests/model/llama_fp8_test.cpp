// Whole models in FP8, in both layouts of operands: close to BF16, and changes that must not affect
// a bit of losses, gradients and scales.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/fp8_model.h"
#include "model/random_model.h"

namespace mpt::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(ModelBench& bench, const Tensor& tensor) {
  Bytes bytes(static_cast<size_t>(tensor.elements() * size_of(tensor.dtype)));
  bench.device().download(tensor, bytes.data());
  return bytes;
}

std::map<std::string, Bytes> scales_of(ModelBench& bench) {
  std::map<std::string, Bytes> all;
  for (const NamedTensor& named : bench.llama().named_states())
    all[named.name] = bytes_of(bench, named.tensor);
  return all;
}

void initialize(ModelBench& bench) {
  initialize_weights(bench.store(), 0.2, 5, bench.device());
  bench.llama().update_casts();
}

struct Outcome {
  std::vector<double> losses;
  NamedValues gradients;
  std::map<std::string, Bytes> scales;
  bool operator==(const Outcome&) const = default;
};

// Steps without an optimizer: scales move, weights do not.
Outcome outcome_of(ModelBench& bench, const GoldenModel& model, int steps, int64_t rows = 2) {
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    outcome.losses.push_back(bench.step(model, rows));
    bench.llama().update_casts();
  }
  outcome.gradients = bench.gradients();
  outcome.scales = scales_of(bench);
  return outcome;
}

class LlamaFp8 : public testing::TestWithParam<Variant> {
 protected:
  [[nodiscard]] Outcome outcome_with(BenchOptions options) const {
    ModelBench bench(kConfig, options);
    initialize(bench);
    return outcome_of(bench, model_, 3);
  }
  GoldenModel model_ = random_model(kConfig, kBatch, {.storage = DType::kBF16, .ignored = 0.1});
};

TEST_P(LlamaFp8, ThreadsChangeNothing) {
  BenchOptions options = options_of(GetParam());
  const Outcome one = outcome_with(options);
  for (const int threads : {2, 3}) {
    options.threads = threads;
    EXPECT_TRUE(outcome_with(options) == one) << threads;
  }
}

TEST_P(LlamaFp8, RecomputationChangesNothing) {
  BenchOptions options = options_of(GetParam());
  const Outcome kept = outcome_with(options);
  options.recompute = Recompute::kBlock;
  EXPECT_TRUE(outcome_with(options) == kept);
}

// Codes of weights recomputed for each GEMM equal those that would have been kept: with new weights
// in every step, one and two micro-batches, recomputed blocks, and evaluation in between.
TEST_P(LlamaFp8, CodesOfOneLayerChangeNothing) {
  const GoldenModel other = random_model(kConfig, kBatch, {.storage = DType::kBF16, .seed = 99});
  for (const auto& [recompute, rows] :
       {std::pair{Recompute::kNone, 2}, {Recompute::kNone, 1}, {Recompute::kBlock, 1}}) {
    const auto outcome_of_codes = [&](WeightCodes codes) {
      BenchOptions options = options_of(GetParam());
      options.micro_batch.rows = rows;
      options.additions = kBatch.rows / rows;
      options.recompute = recompute;
      options.weight_codes = codes;
      ModelBench bench(kConfig, options);
      std::vector<Outcome> steps;
      for (const uint64_t seed : {5, 6, 7}) {
        initialize_weights(bench.store(), 0.2, seed, bench.device());
        bench.llama().update_casts();
        Outcome step;
        step.losses = {bench.step(model_, rows), bench.llama().evaluate(other.rows(0, rows))};
        step.gradients = bench.gradients();
        step.scales = scales_of(bench);
        steps.push_back(std::move(step));
      }
      return steps;
    };
    EXPECT_TRUE(outcome_of_codes(WeightCodes::kOneLayer) ==
                outcome_of_codes(WeightCodes::kAllLayers))
        << rows << " rows";
  }
}

// A model that takes over another's weights and scales continues like the other.
TEST_P(LlamaFp8, ResumesToTheBit) {
  BenchOptions other_codes = options_of(GetParam());
  other_codes.weight_codes = WeightCodes::kOneLayer;
  ModelBench first(kConfig, options_of(GetParam())), second(kConfig, other_codes);
  initialize(first);
  outcome_of(first, model_, 2);
  initialize(second);
  const auto from = first.llama().named_states(), to = second.llama().named_states();
  ASSERT_EQ(from.size(), GetParam().config.fp8_recipe == Fp8Recipe::kDelayed ? 4u : 0u);
  for (size_t i = 0; i < from.size(); ++i)
    second.device().upload(bytes_of(first, from[i].tensor).data(), to[i].tensor);
  second.llama().update_casts();
  EXPECT_EQ(second.llama().evaluate(model_.rows(0, 2)), first.llama().evaluate(model_.rows(0, 2)));
  EXPECT_TRUE(outcome_of(second, model_, 2) == outcome_of(first, model_, 2));
}

TEST_P(LlamaFp8, PaddingStaysPositiveZero) {
  for (const WeightCodes codes : {WeightCodes::kAllLayers, WeightCodes::kOneLayer}) {
    BenchOptions options = options_of(GetParam());
    options.weight_codes = codes;
    ModelBench bench(kConfig, options);
    initialize(bench);
    outcome_of(bench, model_, 3);
    for (const LayerParam which : {LayerParam::kGate, LayerParam::kUp, LayerParam::kDown}) {
      const int64_t i = layer_index(kConfig, 1, which);
      const ParamSpec& spec = bench.store().specs()[size_t(i)];
      const std::vector<float> gradient = values_of(bench.device(), bench.store().gradient(i));
      for (int64_t r = 0; r < spec.physical_rows; ++r)
        for (int64_t c = 0; c < spec.physical_cols; ++c) {
          if (r < spec.rows && c < spec.cols) continue;
          ASSERT_EQ(bits_of(gradient[size_t(r * spec.physical_cols + c)]), 0u) << spec.name;
        }
    }
  }
}

// Training is unaffected by evaluation, unless configured otherwise: then only by its amaxes.
TEST_P(LlamaFp8, EvaluationAndScales) {
  const GoldenModel other = random_model(kConfig, kBatch, {.storage = DType::kBF16, .seed = 99});
  BenchOptions options = options_of(GetParam());
  const Outcome undisturbed = outcome_with(options);
  ModelBench bench(kConfig, options);
  initialize(bench);
  outcome_of(bench, model_, 2);
  const auto before = scales_of(bench);
  bench.llama().evaluate(other.rows(0, 2));
  bench.llama().logits(other.tokens);
  EXPECT_EQ(scales_of(bench), before);
  EXPECT_TRUE(outcome_of(bench, model_, 1).gradients == undisturbed.gradients);

  if (options.fp8->fp8_recipe == Fp8Recipe::kCurrent) return;
  options.fp8->fp8_eval_amax = EvalAmax::kFold;
  ModelBench folding(kConfig, options);
  initialize(folding);
  outcome_of(folding, model_, 2);
  const auto history = [&] {
    return values_of(folding.device(), folding.llama().named_states().at(0).tensor);
  };
  const std::vector<float> seen = history();
  const auto scales = scales_of(folding);
  folding.llama().evaluate(other.rows(0, 2));
  const std::vector<float> after = history();
  const size_t slots = seen.size() / 4;
  EXPECT_EQ(std::vector(after.begin() + int64_t(slots), after.end()),
            std::vector(seen.begin() + int64_t(slots), seen.end()));
  EXPECT_GT(after[0], 0) << "input of the first GEMM";
  for (const char* kept : {"fp8_forward_scale", "fp8_backward_scale", "fp8_backward_amax_history"})
    EXPECT_EQ(scales_of(folding).at(kept), scales.at(kept));
}

// Bound on the distance of a whole FP8 model from BF16. Each of the two operands of a GEMM is
// rounded by at most half a spacing: 2^-4 of the value in E4M3, 2^-3 in E5M2, evenly distributed,
// so 1/sqrt(3) of that on average. Independent roundings add like random walks: two operands of
// each GEMM forward, two backward, and the weight gradient's own two. A wrong scale or a missing
// term is off by 1 in this measure.
double tolerance(const PrecisionConfig& config) {
  const double e4m3 = 0x1p-8 / 3, e5m2 = 0x1p-6 / 3;  // squared
  const double products = double(4 * kConfig.num_hidden_layers + (config.fp8_lm_head ? 1 : 0));
  return std::sqrt(products * (2 * e4m3 + e4m3 + e5m2) + e4m3 + e5m2);
}

// Root mean square of logits around the mean of their token.
double spread_of(const std::vector<float>& logits) {
  const auto vocab = kConfig.vocab_size;
  double sum = 0;
  for (auto token = logits.begin(); token != logits.end(); token += vocab) {
    const double mean = std::accumulate(token, token + vocab, 0.0) / double(vocab);
    sum += std::accumulate(token, token + vocab, 0.0, [=](double all, float x) {
      return all + (double(x) - mean) * (double(x) - mean);
    });
  }
  return std::sqrt(sum / double(logits.size()));
}

std::vector<float> times(float factor, std::vector<float> values) {
  for (float& x : values) x *= factor;
  return values;
}

TEST_P(LlamaFp8, IsCloseToBf16) {
  if (GetParam().config.weights != WeightFormat::kBF16) GTEST_SKIP() << "the weights differ";
  ModelBench fp8(kConfig, options_of(GetParam()));
  BenchOptions plain = options_of(GetParam());
  plain.fp8.reset();
  ModelBench bf16_model(kConfig, plain);
  initialize(fp8);
  initialize(bf16_model);
  const Outcome got = outcome_of(fp8, model_, 6), want = outcome_of(bf16_model, model_, 6);
  const double most = tolerance(GetParam().config);
  // A token's loss changes by the dot product of its logits' errors and p - y, which is no longer
  // than sqrt(2); tokens add like random walks.
  EXPECT_NEAR(got.losses.back(), want.losses.back(),
              most * spread_of(bf16_model.llama().logits(model_.tokens)) *
                  std::sqrt(2 * double(model_.predicted())));
  EXPECT_NE(got.losses.back(), want.losses.back());
  // The norm of n errors scatters by 1/sqrt(2 n) of itself: by 1/8 for a gain's 32, at most three
  // times that. Over all tensors it does not.
  const double most_of_one = (1 + 3.0 / 8) * most;
  std::vector<float> all_got, all_want;
  for (const auto& [name, values] : want.gradients) {
    const std::vector<float>& found = got.gradients.at(name);
    const double d = deviation(found, values).relative_norm;
    EXPECT_LE(d, most_of_one) << name;
    EXPECT_GT(d, 0) << name;
    for (const float factor : {0.5f, 2.0f})
      EXPECT_GT(deviation(times(factor, found), values).relative_norm, most_of_one) << name;
    all_got.insert(all_got.end(), found.begin(), found.end());
    all_want.insert(all_want.end(), values.begin(), values.end());
  }
  EXPECT_LE(deviation(all_got, all_want).relative_norm, most);
}

INSTANTIATE_TEST_SUITE_P(All, LlamaFp8, testing::ValuesIn(variants_in_both_layouts()),
                         variant_name);

// --- options that reach the GEMMs ----------------------------------------------------------------

TEST(LlamaFp8Options, OnlyForwardGemmsMaySumFast) {
  const GoldenModel model = random_model(kConfig, kBatch, {.storage = DType::kBF16});
  for (const bool fast : {true, false})
    for (const bool head : {true, false}) {
      PrecisionConfig config = fp8_config();
      config.fp8_fast_accum_fprop = fast;
      config.fp8_lm_head = head;
      BenchOptions options = options_of(config);
      std::vector<GemmCall> calls;
      options.fp8_gemm.calls = &calls;
      ModelBench bench(kConfig, options);
      initialize(bench);
      bench.step(model, kBatch.rows);
      int64_t forward = 0, backward = 0, wide = 0;
      for (const GemmCall& call : calls) {
        const bool of_forward = call.a.dtype == DType::kE4M3;  // else it is an output's gradient
        if (!is_fp8(call.a.dtype)) {
          ++wide;
          EXPECT_EQ(call.multiply, Multiply::kFull);
        } else {
          ++(of_forward ? forward : backward);
          EXPECT_EQ(call.multiply, of_forward && fast ? Multiply::kFastFp8 : Multiply::kFull);
        }
      }
      const int64_t linears = 4 * kConfig.num_hidden_layers, chunks = 2;
      EXPECT_EQ(forward, linears + (head ? chunks : 0));
      EXPECT_EQ(backward, 2 * forward);
      EXPECT_EQ(wide, head ? 0 : 3 * chunks);
    }
}

TEST(LlamaFp8Options, TheSourceOfCastsChangesCodes) {
  const GoldenModel model = random_model(kConfig, kBatch, {.storage = DType::kBF16});
  for (const bool head : {false, true}) {
    const auto outcome_through = [&](Format source) {
      PrecisionConfig config = fp8_config();
      config.fp8_cast_source = source;
      config.fp8_lm_head = head;
      ModelBench bench(kConfig, options_of(config));
      initialize(bench);
      return outcome_of(bench, model, 1);
    };
    const Outcome narrow = outcome_through(Format::kBF16), wide = outcome_through(Format::kF32);
    EXPECT_NE(narrow.losses, wide.losses);
    EXPECT_FALSE(narrow.gradients == wide.gradients);
  }
}

// --- cadence -------------------------------------------------------------------------------------

float history_at(ModelBench& bench, int64_t row, int64_t slot) {
  const Tensor history = bench.llama().named_states().at(0).tensor;
  return values_of(bench.device(), history)[size_t(row * history.cols + slot)];
}

int64_t updates_seen(ModelBench& bench, int64_t slot) {
  int64_t count = 0;
  for (int64_t row = 1; row < bench.llama().named_states().at(0).tensor.rows; ++row)
    count += history_at(bench, row, slot) != 0;
  return count;
}

// Slots 0 and 1: input and weight of the first GEMM; a step of two micro-batches.
TEST(LlamaFp8Cadence, UpdatesPerMicroBatchOrStep) {
  const GoldenModel model = random_model(kConfig, kBatch, {.storage = DType::kBF16});
  const struct {
    Cadence update, recast;
    int64_t inputs, weights;
  } fp8_cases[] = {{Cadence::kMicrobatch, Cadence::kStep, 2, 1},
                   {Cadence::kMicrobatch, Cadence::kMicrobatch, 2, 2},
                   {Cadence::kStep, Cadence::kStep, 1, 1},
                   {Cadence::kStep, Cadence::kMicrobatch, 1, 1}};
  for (const auto& c : fp8_cases) {
    PrecisionConfig config = fp8_config();
    config.fp8_amax_update = c.update;
    config.fp8_weight_recast = c.recast;
    BenchOptions options = options_of(config);
    options.micro_batch.rows = 1;
    options.additions = 2;
    ModelBench bench(kConfig, options);
    initialize(bench);
    EXPECT_EQ(history_at(bench, 0, 1) != 0, c.recast == Cadence::kStep);
    bench.step(model, 1);
    EXPECT_EQ(updates_seen(bench, 0), c.inputs);
    EXPECT_EQ(updates_seen(bench, 1), c.weights);
    EXPECT_EQ(history_at(bench, 0, 0), 0);
    EXPECT_EQ(history_at(bench, 0, 1), 0) << "a weight that is used again is not seen again";
  }
}

// With one scale for the whole step, and weights that do not change, it does not matter how often
// they are cast.
TEST(LlamaFp8Cadence, CastingUnchangedWeightsAgainChangesNothing) {
  const GoldenModel model = random_model(kConfig, kBatch, {.storage = DType::kBF16});
  const auto with = [&](Cadence recast) {
    PrecisionConfig config = fp8_config(WeightFormat::kBlockFp8);
    config.fp8_amax_update = Cadence::kStep;
    config.fp8_weight_recast = recast;
    BenchOptions options = options_of(config);
    options.micro_batch.rows = 1;
    options.additions = 2;
    ModelBench bench(kConfig, options);
    initialize(bench);
    const Outcome outcome = outcome_of(bench, model, 3, 1);
    return std::pair(outcome.losses, outcome.gradients);
  };
  EXPECT_EQ(with(Cadence::kStep), with(Cadence::kMicrobatch));
}

// --- layouts -------------------------------------------------------------------------------------

struct LayoutCase {
  Recompute recompute;
  int64_t rows;  // of a micro-batch; 2 are planned
};

class Layouts : public testing::TestWithParam<Variant> {};

// Operands are the same in any layout: so are all results, if sums are taken in the same order.
TEST_P(Layouts, GiveTheSameBits) {
  const GoldenModel model =
      random_model(kConfig, kBatch, {.storage = DType::kBF16, .ignored = 0.1});
  for (const auto& c : {LayoutCase{Recompute::kNone, 2}, LayoutCase{Recompute::kNone, 1},
                        LayoutCase{Recompute::kBlock, 2}, LayoutCase{Recompute::kBlock, 1}}) {
    const auto outcome_in = [&](Fp8Layout layout) {
      BenchOptions options = options_of(GetParam().config);
      options.recompute = c.recompute;
      options.additions = kBatch.rows / c.rows;
      options.fp8_gemm = {layout, Fp8Sums::kInOrder};
      ModelBench bench(kConfig, options);
      initialize(bench);
      Outcome outcome = outcome_of(bench, model, 3, c.rows);
      outcome.losses.push_back(bench.llama().evaluate(model.rows(0, 2)));
      const std::vector<float> logits = bench.llama().logits(model.tokens);
      outcome.losses.insert(outcome.losses.end(), logits.begin(), logits.end());
      outcome.losses.push_back(bench.step(model, c.rows));
      return outcome;
    };
    const Outcome any = outcome_in(Fp8Layout::kAny), rows_of_k = outcome_in(Fp8Layout::kRowsOfK);
    EXPECT_EQ(any.losses, rows_of_k.losses);
    EXPECT_EQ(any.scales, rows_of_k.scales);
    EXPECT_TRUE(any.gradients == rows_of_k.gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::ValuesIn(variants()), variant_name);

}  // namespace
}  // namespace mpt::test
