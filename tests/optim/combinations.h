// The only list of optimizer combinations: rule x write-back x state x weight format. Tests that
// must hold for every combination run over it.
#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "optim/optimizer_fixture.h"
#include "support/all_tests.h"

namespace mpt::test {

struct Combination {
  std::string name;
  RunSetup setup;
  std::array<size_t, 4> place{};  // along each axis: rule, write-back, state, weight format
};

// Uses every option, so that no path of a rule is idle.
inline std::vector<FlatConfig> busy_rules() {
  FlatConfig base;
  base.lr_additive = 1e-3;
  base.lr_multiplicative = 1e-2;
  base.clip_exponent_step = 0.5;
  base.weight_decay_multiplicative = 0.1;
  base.apollo_e_rank = 3;
  base.apollo_e_gap = 2;
  const auto m_plus_adam = [&](MultiplicativeDecay decay, ApolloE apollo_e) {
    FlatConfig config = base;
    config.rule = "m_plus_adam";
    config.clip_weight = 3;
    config.clip_weight_mode = ClipWeightMode::kInitRms;
    config.weight_decay_multiplicative_mode = decay;
    config.apollo_e = apollo_e;
    return config;
  };
  std::vector<FlatConfig> rules;
  Rules::each([&]<class R>(std::type_identity<R>) {
    if (R::Config::kName == MPlusAdam::Config::kName) return;  // below, with its options
    rules.push_back(base);
    rules.back().rule = R::Config::kName;
  });
  for (const ApolloE apollo_e : {ApolloE::kOff, ApolloE::kMini, ApolloE::kChannel})
    for (const MultiplicativeDecay decay :
         {MultiplicativeDecay::kScale, MultiplicativeDecay::kExponent})
      rules.push_back(m_plus_adam(decay, apollo_e));
  return rules;
}

inline std::vector<FlatConfig> with_roundings(const FlatConfig& rule) {
  std::vector<FlatConfig> configs(10, rule);
  configs[1].weight_rounding = configs[2].weight_rounding = WeightRounding::kStochastic;
  configs[2].sr_saturate = true;
  configs[3].weight_rounding = configs[4].weight_rounding = WeightRounding::kKahan;
  configs[4].kahan_variant = KahanVariant::kPerOp;
  configs[5].weight_rounding = WeightRounding::kRemainder;
  configs[6].weight_rounding = WeightRounding::kUlpResidual;
  configs[7].weight_rounding = WeightRounding::kMaster;
  configs[8].error_feedback = configs[9].error_feedback = ErrorFeedbackMode::kMomentum;
  configs[9].weight_rounding = WeightRounding::kStochastic;
  return configs;
}

inline std::vector<OptimizerOptions> every_state() {
  constexpr uint64_t kSeed = 0x0123456789abcdef;
  return {{.state = Format::kF32, .seed = kSeed},
          {.seed = kSeed},
          {.state_rounding = Rounding::kStochastic, .seed = kSeed},
          {.state_update = StateUpdate::kPerOp, .seed = kSeed}};
}

inline std::vector<WeightEncoding> every_encoding() {
  std::vector<WeightEncoding> encodings{{.format = WeightFormat::kF32},
                                        {.format = WeightFormat::kBF16}};
  for (const int64_t block : {16, 128, 256})
    encodings.push_back({.format = WeightFormat::kBlockFp8, .fp8_block_size = block});
  encodings.push_back({.format = WeightFormat::kBlockFp8, .fp8_scale_mode = Fp8ScaleMode::kFp16});
  for (const Nvfp4ScaleMode mode : {Nvfp4ScaleMode::kSticky, Nvfp4ScaleMode::kLive})
    encodings.push_back({.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = mode});
  encodings.push_back({.format = WeightFormat::kMxfp8});
  return encodings;
}

// Returns whether the pair is accepted.
inline bool goes_together(const FlatConfig& config, const WeightEncoding& encoding) {
  const RuleConfig rule = OptimizerConfig(config).rule;
  const bool per_op = config.kahan_variant == KahanVariant::kPerOp;
  return (!completes_bf16(config.weight_rounding) || encoding.format == WeightFormat::kBF16) &&
         (!per_op || has_eager_kahan(rule)) &&
         (config.error_feedback == ErrorFeedbackMode::kOff || takes_errors(rule));
}
// Saturation only concerns BF16.
inline bool is_redundant(const FlatConfig& config, const WeightEncoding& encoding) {
  return config.sr_saturate && encoding.format != WeightFormat::kBF16;
}

inline std::string name_of_combination(const RunSetup& setup) {
  const FlatConfig& c = setup.config;
  const WeightEncoding& w = setup.encoding;
  const bool block_rates = c.nvfp4_additive_scale == Nvfp4AdditiveScale::kBlock;
  return fmt::format("{} decay {} apollo_e {}, {}{}{}, state {} {} {}, weights {} {} {} {}{}",
                     c.rule, name_of(c.weight_decay_multiplicative_mode), name_of(c.apollo_e),
                     name_of(c.weight_rounding),
                     c.kahan_variant == KahanVariant::kPerOp ? " per_op" : "",
                     c.sr_saturate                                 ? " saturating"
                     : c.error_feedback == ErrorFeedbackMode::kOff ? ""
                                                                   : " fed back",
                     name_of(setup.options.state), name_of(setup.options.state_rounding),
                     name_of(setup.options.state_update), name_of(w.format), w.fp8_block_size,
                     name_of(w.fp8_scale_mode), name_of(w.nvfp4_scale_mode),
                     block_rates ? ", rates by block" : "");
}

// Additive rates by block: with every rule that has some and every way to scale, but one way to
// store.
inline std::vector<RunSetup> block_rate_setups() {
  std::vector<RunSetup> setups;
  for (FlatConfig rule : busy_rules())
    for (const WeightEncoding& encoding : every_encoding()) {
      if (additive_of(OptimizerConfig(rule).rule) == nullptr ||
          !has_relative_scales(encoding.format))
        continue;
      rule.nvfp4_additive_scale = Nvfp4AdditiveScale::kBlock;
      setups.push_back({rule, every_state()[1], encoding, DType::kBF16});
    }
  return setups;
}

inline const std::vector<Combination>& every_combination() {
  static const std::vector<Combination> all = [] {
    std::vector<Combination> found;
    const auto rules = busy_rules();
    const auto states = every_state();
    const auto encodings = every_encoding();
    for (size_t r = 0; r < rules.size(); ++r) {
      const auto configs = with_roundings(rules[r]);
      for (size_t c = 0; c < configs.size(); ++c)
        for (size_t s = 0; s < states.size(); ++s)
          for (size_t e = 0; e < encodings.size(); ++e) {
            if (!goes_together(configs[c], encodings[e]) || is_redundant(configs[c], encodings[e]))
              continue;
            RunSetup setup{configs[c], states[s], encodings[e], dtype_of(states[s].state)};
            found.push_back({name_of_combination(setup), setup, {r, c, s, e}});
          }
    }
    for (const RunSetup& setup : block_rate_setups())
      found.push_back({name_of_combination(setup), setup, {rules.size(), found.size(), 0, 0}});
    return found;
  }();
  return all;
}

// Returns one combination for every two compatible values of two axes: it shows a fault that one
// option has, or that two have together. Greedy: next is always the one with most new pairs.
inline std::vector<Combination> pairwise_combinations() {
  using Pair = std::array<size_t, 4>;  // axis, place, axis, place
  std::set<Pair> missing;
  const auto each_pair = [](const Combination& c, const auto& f) {
    for (size_t a = 0; a < c.place.size(); ++a)
      for (size_t b = a + 1; b < c.place.size(); ++b) f(Pair{a, c.place[a], b, c.place[b]});
  };
  for (const Combination& c : every_combination())
    each_pair(c, [&](const Pair& pair) { missing.insert(pair); });
  std::vector<Combination> found;
  while (!missing.empty()) {
    const auto new_pairs = [&](const Combination& c) {
      size_t count = 0;
      each_pair(c, [&](const Pair& pair) { count += missing.count(pair); });
      return count;
    };
    found.push_back(*std::ranges::max_element(every_combination(), {}, new_pairs));
    each_pair(found.back(), [&](const Pair& pair) { missing.erase(pair); });
  }
  return found;
}

// The combinations that tests run over.
inline const std::vector<Combination>& tested_combinations() {
  static const std::vector<Combination> tested =
      all_tests() ? every_combination() : pairwise_combinations();
  return tested;
}

// Rows of a little more than one update block, partial blocks, more columns than rows and more rows
// than columns.
inline std::vector<TargetShape> combination_shapes() {
  return {{.rows = 5, .cols = 277, .stride = 288, .physical_rows = 16},
          {.rows = 19, .cols = 7, .stride = 16, .physical_rows = 32},
          {.cols = 33, .rank = 1}};
}

// For optimizers cut over ranks: tensors of several pieces and of one, rows that end within an
// update block, more rows than columns and vice versa, and a vector that is cut.
inline std::vector<TargetShape> shapes_to_cut() {
  return {{.rows = 70,
           .cols = 5,
           .stride = 16,
           .physical_rows = 80,
           .matrix_kind = ParamKind::kEmbedding},
          {.rows = 21, .cols = 261, .stride = 272},
          {.rows = 67, .cols = 33, .stride = 48, .physical_rows = 80},
          {.cols = 4200, .rank = 1},
          {.cols = 33, .rank = 1}};
}
// In two buckets.
inline std::vector<PartitionedTensor> tensors_to_cut(const FlatConfig& config) {
  std::vector<PartitionedTensor> tensors;
  for (const TargetShape& shape : shapes_to_cut()) {
    const ParamKind kind = shape.rank == 1 ? ParamKind::kNorm : shape.matrix_kind;
    tensors.push_back({.rows = shape.rows,
                       .cols = shape.cols,
                       .bucket = tensors.size() < 2 ? 0 : 1,
                       .cut = cut_of(config, kind)});
  }
  return tensors;
}

}  // namespace mpt::test
