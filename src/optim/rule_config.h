// The rule of a config with its keys, for code that does not compute with it. rule_list.h, which
// includes the rules themselves, is for this layer only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/rule.h"

namespace mpt {

class Choice;
struct AdamConfig;

// A value type: copies are independent. By default the first rule of the list, with default keys.
class RuleConfig {
 public:
  class Keys;  // keys of one of the rules; see rule_list.h

  RuleConfig();
  template <class K>  // R::Config of a rule R; defined in rule_list.h
  requires requires { K::kName; }
  RuleConfig(const K& keys);
  RuleConfig(const RuleConfig& other);
  RuleConfig(RuleConfig&& other) noexcept;
  RuleConfig& operator=(RuleConfig other) noexcept;
  ~RuleConfig();

  bool operator==(const RuleConfig& other) const;

  [[nodiscard]] Keys& keys() { return *keys_; }
  [[nodiscard]] const Keys& keys() const { return *keys_; }
  // The form that config_fields.h reads and writes.
  [[nodiscard]] Choice& choice();

 private:
  std::unique_ptr<Keys> keys_;
};

std::string_view rule_name(const RuleConfig& config);
std::vector<std::string> rule_names();
// All names as one comma-separated text.
std::string all_rule_names();
// The rule with default keys. Throws LogicError if no rule has that name.
RuleConfig default_rule(std::string_view name);

// The first is the main rate, logged as "lr".
std::vector<PeakRate> rates_of(const RuleConfig& config);
std::string describe(const RuleConfig& config);
size_t step_of(const RuleConfig& config, const TensorScalars& tensor);
std::span<const StateInfo> states_of(const RuleConfig& config, const TensorScalars& tensor = {});
bool bounds_weights(const RuleConfig& config);
std::optional<ProjectionOptions> projection_options(const RuleConfig& config);
std::optional<OrthogonalizationOptions> orthogonalization_options(const RuleConfig& config);
int64_t table_size(const RuleConfig& config);
void fill_table(const RuleConfig& config, const StepScalars& step, std::span<float> to);
bool has_eager_kahan(const RuleConfig& config);
// Whether the rule supports error_feedback = momentum; and the rules that do, as text.
bool takes_errors(const RuleConfig& config);
std::string rules_that_take_errors();
// Number of branches that update statistics distinguish.
int branches_of(const RuleConfig& config);
// The rules with eager Kahan arithmetic, as text.
std::string rules_with_eager_kahan();
// Null if the rule has no additive step.
const AdditiveConfig* additive_of(const RuleConfig& config);
// Null if the rule has no Adam direction.
const AdamConfig* adam_of(const RuleConfig& config);
void check_rule(const RuleConfig& config, const KeyReport& report);

}  // namespace mpt
