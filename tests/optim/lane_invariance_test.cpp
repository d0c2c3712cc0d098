// The update of a tensor gives the same bits for any number of lanes and threads.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "optim/optimizer_fixture.h"
#include "optim/update_unit.h"
#include "precision/dispatch.h"
#include "support/draws.h"
#include "support/host_matrix.h"
#include "support/lockstep_group.h"

namespace mpt {
namespace {

using test::Draws;
using test::fill_tensor;
using test::HostMatrix;

// Rows of one, of less than a unit, of whole units, of one more, and the intermediate size of the 1B model.
constexpr int64_t kColumns[] = {1, 3, 127, 128, 129, 131, 5461};

// Every option in use, so that no path of the rule is idle.
OptimizerConfig busy_config(UpdateRule rule, MultiplicativeDecay decay) {
  OptimizerConfig config;
  config.rule = rule;
  config.lr_additive = 1e-3;
  config.lr_multiplicative = 1e-2;
  config.clip_exponent_step = 0.5;
  config.clip_weight = 1.5;
  config.weight_decay_multiplicative = 0.1;
  config.weight_decay_multiplicative_mode = decay;
  return config;
}

std::vector<OptimizerConfig> every_rule() {
  return {busy_config(UpdateRule::kAdamW, MultiplicativeDecay::kScale),
          busy_config(UpdateRule::kMPlusAdam, MultiplicativeDecay::kScale),
          busy_config(UpdateRule::kMPlusAdam, MultiplicativeDecay::kExponent)};
}

struct Case {
  OptimizerConfig config;
  test::Formats formats;
  int64_t cols;
};

// All that an update reads and writes, with guarded padding between the rows.
struct Tensors {
  std::vector<HostMatrix> states;
  HostMatrix weights, gradient;

  explicit Tensors(const Case& c)
      : weights(matrix(c, c.formats.weights)), gradient(matrix(c, c.formats.gradient)) {
    Draws draws(21);
    const auto value = [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); };
    weights.fill(value);
    gradient.fill(value);
    for (size_t i = 0; i < state_names(c.config).size(); ++i) {
      states.push_back(matrix(c, c.formats.state));
      states.back().fill([&](int64_t, int64_t) { return std::fabs(draws.signed_binades(-20, -6)); });
    }
  }
  static HostMatrix matrix(const Case& c, DType dtype) {
    return {dtype, {.rows = 2, .cols = c.cols, .padding = c.cols % 7}};
  }
  bool operator==(const Tensors&) const = default;
};

// Three steps by the given way of running units.
template <class Run>
Tensors updated(const Case& c, const Run& run) {
  Tensors tensors(c);
  for (int64_t t = 1; t <= 3; ++t) {
    const StepScalars step{
        .t = t, .lr_additive = c.config.lr_additive, .lr_multiplicative = c.config.lr_multiplicative};
    const std::vector<float> table = exponent_decay_table(c.config, step);
    const AnyRule any = make_rule(c.config, step, {.rank = 2, .weight_unit = 1.0f}, table.data());
    const auto update = [&]<class Rule, class W, class S, class G>(const Rule& rule, W, S, G) {
      using Unit = UpdateUnit<Rule, ElementCodec<W>, ElementCodec<S>, ElementCodec<const G>>;
      const Tensor w = tensors.weights;
      Unit unit{rule, {w.rows, w.cols, w.stride}, {w.as<W>()}, {}, {tensors.gradient.view().as<const G>()},
                0.7f};
      for (size_t i = 0; i < tensors.states.size(); ++i) unit.states[i] = {tensors.states[i].view().as<S>()};
      run(unit.grid.units(), unit);
    };
    std::visit(
        [&](const auto& rule) {
          dispatch(c.formats.weights, [&](auto w) {
            dispatch(c.formats.state,
                     [&](auto s) { dispatch(c.formats.gradient, [&](auto g) { update(rule, w, s, g); }); });
          });
        },
        any);
  }
  return tensors;
}

template <class F>
void for_every_case(const F& f) {
  constexpr DType kFormats[] = {DType::kF32, DType::kBF16};
  for (const OptimizerConfig& config : every_rule())
    for (const DType weights : kFormats)
      for (const DType state : kFormats)
        for (const DType gradient : kFormats)
          for (const int64_t cols : kColumns) {
            SCOPED_TRACE(fmt::format("{} {}, w {} s {} g {}, {} columns", name_of(config.rule),
                                     name_of(config.weight_decay_multiplicative_mode), name_of(weights),
                                     name_of(state), name_of(gradient), cols));
            f(Case{config, {weights, state, gradient}, cols});
          }
}

TEST(LaneInvariance, EveryRuleAndFormat) {
  const auto serial = [](int64_t units, const auto& unit) {
    for (int64_t u = 0; u < units; ++u) unit(SerialGroup{}, u);
  };
  const auto lanes4 = [](int64_t units, const auto& unit) { test::run_lockstep<4>(units, unit); };
  const auto lanes32 = [](int64_t units, const auto& unit) { test::run_lockstep<32>(units, unit); };
  for_every_case([&](const Case& c) {
    const Tensors expected = updated(c, serial);
    ASSERT_NE(expected.weights.bytes(), Tensors(c).weights.bytes());
    ASSERT_TRUE(expected.weights.padding_untouched());
    for (const HostMatrix& state : expected.states) ASSERT_TRUE(state.padding_untouched());
    ASSERT_EQ(updated(c, lanes4), expected);
    ASSERT_EQ(updated(c, lanes32), expected);
  });
}

// The lockstep lanes really exchange values: otherwise the tests above prove less than they say.
TEST(LaneInvariance, LockstepLanesMeetInReduceMax) {
  std::vector<float> found(4 * 8);
  test::run_lockstep<8>(4, [&](auto group, int64_t unit) {
    found[size_t(unit * 8 + group.lane())] = group.reduce_max(float((group.lane() * 5 + unit) % 8));
  });
  for (const float most : found) EXPECT_EQ(most, 7.0f);
}

// Which elements a lane owns: disjoint parts in order that cover the unit.
TEST(LaneInvariance, LanePartsCoverTheUnit) {
  for (const int64_t count : {0, 1, 3, 4, 5, 31, 32, 33, 127, 128}) {
    test::LockstepTeam<32> team;
    int64_t next = 1000;
    for (int64_t lane = 0; lane < 32; ++lane) {
      const LanePart<test::LockstepGroup<32>> part({team, lane}, {.offset = 1000, .count = count});
      ASSERT_GE(part.size, 0);
      ASSERT_LE(part.size, part.kSize);
      if (part.size > 0) {
        ASSERT_EQ(part.first, next);
      }
      next += part.size;
    }
    ASSERT_EQ(next, 1000 + count);
  }
}

TEST(LaneInvariance, UnitGridCoversEveryElementOnce) {
  for (const int64_t rows : {0, 1, 3})
    for (const int64_t cols : {1, 127, 128, 129, 300}) {
      const UnitGrid grid{rows, cols, cols + 5};
      std::vector<int> seen(size_t(rows * grid.stride));
      for (int64_t u = 0; u < grid.units(); ++u) {
        const UnitSpan span = grid.span(u);
        ASSERT_GT(span.count, 0);
        ASSERT_LE(span.count, kUnit);
        for (int64_t i = 0; i < span.count; ++i) ++seen[size_t(span.offset + i)];
      }
      for (int64_t i = 0; i < rows * grid.stride; ++i)
        ASSERT_EQ(seen[size_t(i)], i % grid.stride < cols ? 1 : 0) << rows << " " << cols << " " << i;
    }
}

struct RunResult {
  double grad_norm;
  std::vector<uint32_t> everything;
};

RunResult run_with_threads(int threads) {
  Json keys = test::m_plus_adam_keys();
  keys["clip_weight"] = 3.0;
  keys["clip_weight_mode"] = "init_rms";
  test::OptimizerRun run(test::optimizer_config(keys), {DType::kBF16, DType::kF32, DType::kBF16},
                         {{.rows = 70, .cols = 1000, .stride = 1008}, {.cols = 77, .rank = 1}, {.rows = 300}},
                         threads);
  EXPECT_EQ(omp_get_max_threads(), threads);
  Draws draws(22);
  double norm = 0;
  for (size_t i = 0; i < 3; ++i)
    fill_tensor(run.weights(i), [&](int64_t, int64_t) { return draws.bell(0.02); });
  run.optimizer().weights_initialized();
  for (int64_t t = 1; t <= 3; ++t) {
    for (size_t i = 0; i < 3; ++i)
      fill_tensor(run.gradient(i), [&](int64_t, int64_t) { return draws.bell(0.1); });
    norm = run.optimizer().grad_norm();
    run.step(t, clip_scale(1.0, norm));
  }
  return {norm, run.everything()};
}

TEST(ThreadInvariance, UpdatesNormsAndSums) {
  const RunResult one = run_with_threads(1);
  for (const int threads : {2, 3}) {
    const RunResult many = run_with_threads(threads);
    EXPECT_EQ(many.grad_norm, one.grad_norm) << threads;
    EXPECT_EQ(many.everything, one.everything) << threads;
  }
}

TEST(ThreadInvariance, SumOfSquares) {
  const auto device = make_cpu_device(3);
  const auto ops = make_update_ops(*device);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t cols : {1, 100, 128, 129, 40000}) {
      HostMatrix x(dtype, {.rows = 5, .cols = cols, .padding = 3});
      Draws draws(23);
      x.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 10); });
      const auto pieces = size_t(square_sums(x));
      std::vector<double> first(pieces);
      for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        std::vector<double> sums(pieces);
        ops->sum_of_squares(
            x, {reinterpret_cast<std::byte*>(sums.data()), DType::kF64, 1, int64_t(pieces), int64_t(pieces)});
        if (threads == 1) first = sums;
        ASSERT_EQ(sums, first) << cols << " columns, " << threads << " threads";
      }
      long double exact = 0, sum = 0;
      for (int64_t r = 0; r < 5; ++r)
        for (int64_t c = 0; c < cols; ++c) exact += (long double)(x.at(r, c)) * x.at(r, c);
      for (const double piece : first) sum += piece;
      // All terms are positive: each of the roundings costs at most 2^-53 of the sum.
      EXPECT_NEAR(double(sum), double(exact), double(exact) * double(5 * cols) * 0x1p-53);
    }
}

}  // namespace
}  // namespace mpt
