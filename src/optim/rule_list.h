// The list of update rules and what is derived from it. To add a rule, write a header in rules/ and
// add its include and name here (docs/code/add_a_rule.md).
#pragma once

#include "core/json/config_fields.h"
#include "optim/adam_moments.h"
#include "optim/rule.h"
#include "optim/rule_config.h"
#include "optim/rules/adamw.h"
#include "optim/rules/additive_twin.h"
#include "optim/rules/lion.h"
#include "optim/rules/m_plus_adam.h"
#include "optim/rules/madam.h"
#include "optim/rules/muon.h"
#include "optim/update/error_feedback.h"
#include "optim/update/kahan.h"
#include "precision/dispatch.h"

namespace mpt {

// In file name order; messages list them in this order.
using Rules = TypeList<rule_files::adamw, rule_files::additive_twin, rule_files::lion,
                       rule_files::madam, rule_files::m_plus_adam, rule_files::muon>;

// --- requirements on a rule (rule.h); the compiler's notes name a missing member -----------------

template <class S, class Config>
concept RuleStep = std::is_trivially_copyable_v<S> &&
    requires(const S& step, const Config& config, typename S::Move move, float x, float* state) {
  { S::kStates[0] } -> std::convertible_to<const StateInfo&>;
  requires S::kFactors == 0 || S::kFactors == 1;
  requires S::kBranches == 1 || S::kBranches == kBranches;
  { S::at(config, StepScalars{}, TensorScalars{}) } -> std::same_as<S>;
  { step.template advance<EmaOnce>(x, x, state, x) } -> std::same_as<typename S::Move>;
  { step.template advance<Settled<EmaPerOp>>(x, x, state, x) } -> std::same_as<typename S::Move>;
  { step.moved(x, move) } -> std::same_as<float>;
  { step.change(x, move) } -> std::same_as<float>;
  { step.only(Branch::kBoth, move) } -> std::same_as<typename S::Move>;
  { step.limit_change(x, x) } -> std::same_as<float>;
  { step.settled() } -> std::same_as<bool>;
};

template <class C>
concept RuleKeys = HasFields<C> && std::equality_comparable<C> && requires(const C& config) {
  { C::kName } -> std::convertible_to<std::string_view>;
  { config.rates() } -> std::same_as<std::vector<PeakRate>>;
  { config.describe() } -> std::same_as<std::string>;
};

template <class R>
concept Rule = RuleKeys<typename R::Config> &&
    requires(const typename R::Config& config, const KeyReport& report, std::span<float> table) {
  { R::Steps::kSize } -> std::convertible_to<size_t>;
  { R::step_of(config, TensorScalars{}) } -> std::same_as<size_t>;
  { R::bounds_weights(config) } -> std::same_as<bool>;
  { R::projection(config) } -> std::same_as<std::optional<ProjectionOptions>>;
  { R::orthogonalization(config) } -> std::same_as<std::optional<OrthogonalizationOptions>>;
  { R::table_size(config) } -> std::same_as<int64_t>;
  R::fill_table(config, StepScalars{}, table);
  R::check(config, report);
};

// A rule with its own arithmetic for kahan_variant = per_op.
template <class R>
concept HasEagerKahan = requires {
  typename R::EagerKahan;
};

namespace rule_detail {
template <Rule R, class... S>
requires(RuleStep<S, typename R::Config>&&...) constexpr bool steps_are_complete(
    std::type_identity<R>, TypeList<S...>) {
  return true;
}
template <class... R>
constexpr bool are_complete(TypeList<R...>) {
  return (steps_are_complete(std::type_identity<R>{}, typename R::Steps{}) && ...);
}
template <class... R>
ChoiceOf<typename R::Config...> choice_of(TypeList<R...>);
}  // namespace rule_detail
static_assert(rule_detail::are_complete(Rules{}));

// --- the rule of a config ------------------------------------------------------------------------

class RuleConfig::Keys final : public decltype(rule_detail::choice_of(Rules{})) {
 public:
  using ChoiceOf::ChoiceOf;
};

template <class K>
requires requires { K::kName; }
RuleConfig::RuleConfig(const K& keys) : keys_(std::make_unique<Keys>(keys)) {}

// The keys of rule K in the config.
template <class K>
const K& keys_of(const RuleConfig& config) {
  return std::get<K>(config.keys().value);
}
template <class K>
K& keys_of(RuleConfig& config) {
  return std::get<K>(config.keys().value);
}

// Returns f(std::type_identity<R>{}, keys) for the config's rule R.
template <class F>
decltype(auto) with_rule(const RuleConfig& config, const F& f) {
  using Result = decltype(f(std::type_identity<Rules::At<0>>{}, std::get<0>(config.keys().value)));
  const auto dispatch = [&]<class... R>(TypeList<R...>) -> Result {
    using Call = Result (*)(const RuleConfig&, const F&);
    constexpr Call kCalls[] = {[](const RuleConfig& keys, const F& call) -> Result {
      return call(std::type_identity<R>{}, keys_of<typename R::Config>(keys));
    }...};
    return kCalls[config.keys().chosen()](config, f);
  };
  return dispatch(Rules{});
}

}  // namespace mpt
