// The rule of a config with its keys, for everyone who does not compute with it: rule_list.h, which
// has the rules themselves, is for this layer.
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

// A value: copies are independent. The first rule of the list with its defaults, unless given.
class RuleConfig {
 public:
  class Keys;  // a struct of one of the rules; rule_list.h

  RuleConfig();
  template <class K>  // R::Config of a rule R; rule_list.h has the definition
  requires requires { K::kName; }
  RuleConfig(const K& keys);
  RuleConfig(const RuleConfig& other);
  RuleConfig(RuleConfig&& other) noexcept;
  RuleConfig& operator=(RuleConfig other) noexcept;
  ~RuleConfig();

  bool operator==(const RuleConfig& other) const;

  [[nodiscard]] Keys& keys() { return *keys_; }
  [[nodiscard]] const Keys& keys() const { return *keys_; }
  // As config_fields.h reads and writes it.
  [[nodiscard]] Choice& choice();

 private:
  std::unique_ptr<Keys> keys_;
};

std::string_view rule_name(const RuleConfig& config);
std::vector<std::string> rule_names();
// All names as one text, with commas between.
std::string all_rule_names();
// The rule with default keys; throws LogicError if there is no rule of that name.
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
// Whether error_feedback = momentum goes with the rule, and the rules it goes with, as text.
bool takes_errors(const RuleConfig& config);
std::string rules_that_take_errors();
// Number of branches that update statistics tell apart.
int branches_of(const RuleConfig& config);
// The rules with eager Kahan arithmetic, as text.
std::string rules_with_eager_kahan();
// Null if the rule has no additive step.
const AdditiveConfig* additive_of(const RuleConfig& config);
// Null if the rule has no Adam direction.
const AdamConfig* adam_of(const RuleConfig& config);
void check_rule(const RuleConfig& config, const KeyReport& report);

}  // namespace mpt
