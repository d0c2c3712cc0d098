#include "optim/rule_list.h"

#include "core/check.h"

namespace mpt {

RuleConfig::RuleConfig() : keys_(std::make_unique<Keys>()) {}
RuleConfig::RuleConfig(const RuleConfig& other) : keys_(std::make_unique<Keys>(*other.keys_)) {}
RuleConfig::RuleConfig(RuleConfig&& other) noexcept = default;
RuleConfig& RuleConfig::operator=(RuleConfig other) noexcept {
  keys_.swap(other.keys_);
  return *this;
}
RuleConfig::~RuleConfig() = default;
bool RuleConfig::operator==(const RuleConfig& other) const { return *keys_ == *other.keys_; }
Choice& RuleConfig::choice() { return *keys_; }

std::string_view rule_name(const RuleConfig& config) {
  return config.keys().names()[config.keys().chosen()];
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  Rules::each([&]<class R>(std::type_identity<R>) { names.emplace_back(R::Config::kName); });
  return names;
}

std::string all_rule_names() { return fmt::format("{}", fmt::join(rule_names(), ", ")); }

RuleConfig default_rule(std::string_view name) {
  std::optional<RuleConfig> found;
  Rules::each([&]<class R>(std::type_identity<R>) {
    if (R::Config::kName == name) found.emplace(typename R::Config{});
  });
  check(found.has_value(), "no optimizer {}; expected one of {}", name, all_rule_names());
  return *found;
}

std::vector<PeakRate> rates_of(const RuleConfig& config) {
  return std::visit([](const auto& keys) { return keys.rates(); }, config.keys().value);
}

std::string describe(const RuleConfig& config) {
  return std::visit([](const auto& keys) { return keys.describe(); }, config.keys().value);
}

size_t step_of(const RuleConfig& config, const TensorScalars& tensor) {
  return with_rule(config, [&]<class R>(std::type_identity<R>, const typename R::Config& keys) {
    return R::step_of(keys, tensor);
  });
}

std::span<const StateInfo> states_of(const RuleConfig& config, const TensorScalars& tensor) {
  return with_rule(config, [&]<class R>(std::type_identity<R>, const typename R::Config& keys) {
    std::span<const StateInfo> states;
    const bool found = R::Steps::with(R::step_of(keys, tensor),
                                      [&]<class S>(std::type_identity<S>) { states = S::kStates; });
    check(found, "{} has no step {}", R::Config::kName, R::step_of(keys, tensor));
    return states;
  });
}

bool bounds_weights(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config& keys) {
    return R::bounds_weights(keys);
  });
}

std::optional<ProjectionOptions> projection_options(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config& keys) {
    return R::projection(keys);
  });
}

std::optional<OrthogonalizationOptions> orthogonalization_options(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config& keys) {
    return R::orthogonalization(keys);
  });
}

int64_t table_size(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config& keys) {
    return R::table_size(keys);
  });
}

void fill_table(const RuleConfig& config, const StepScalars& step, std::span<float> to) {
  with_rule(config, [&]<class R>(std::type_identity<R>, const typename R::Config& keys) {
    R::fill_table(keys, step, to);
  });
}

int branches_of(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config&) {
    return R::Steps::template At<0>::kBranches;
  });
}

bool has_eager_kahan(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config&) {
    return HasEagerKahan<R>;
  });
}

namespace {

template <class... S>
constexpr bool all_take_errors(std::type_identity<TypeList<S...>>) {
  return (TakesErrors<S> && ...);
}
template <class R>
constexpr bool kTakesErrors = all_take_errors(std::type_identity<typename R::Steps>{});

}  // namespace

bool takes_errors(const RuleConfig& config) {
  return with_rule(config, []<class R>(std::type_identity<R>, const typename R::Config&) {
    return kTakesErrors<R>;
  });
}

std::string rules_that_take_errors() {
  std::vector<std::string_view> names;
  Rules::each([&]<class R>(std::type_identity<R>) {
    if (kTakesErrors<R>) names.push_back(R::Config::kName);
  });
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string rules_with_eager_kahan() {
  std::vector<std::string_view> names;
  Rules::each([&]<class R>(std::type_identity<R>) {
    if (HasEagerKahan<R>) names.push_back(R::Config::kName);
  });
  return fmt::format("{}", fmt::join(names, ", "));
}

namespace {

// Null if the rule's keys do not include those of Base.
template <class Base>
const Base* keys_as(const RuleConfig& config) {
  return std::visit(
      []<class C>(const C& keys) -> const Base* {
        if constexpr (std::derived_from<C, Base>)
          return &keys;
        else
          return nullptr;
      },
      config.keys().value);
}

}  // namespace

const AdditiveConfig* additive_of(const RuleConfig& config) {
  return keys_as<AdditiveConfig>(config);
}
const AdamConfig* adam_of(const RuleConfig& config) { return keys_as<AdamConfig>(config); }

void check_rule(const RuleConfig& config, const KeyReport& report) {
  with_rule(config, [&]<class R>(std::type_identity<R>, const typename R::Config& keys) {
    R::check(keys, report);
  });
}

}  // namespace mpt
