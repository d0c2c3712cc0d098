// An update rule by name, with rates that move weights and defaults for everything else.
#pragma once

#include <string_view>

#include "optim/rule_list.h"

namespace mpt {

struct Rates {
  double additive, multiplicative;
};

inline RuleConfig benchmarked_rule(std::string_view name, Rates rates) {
  RuleConfig rule = default_rule(name);
  std::visit(
      [&](auto& keys) {
        if constexpr (requires { keys.lr_additive; }) keys.lr_additive = rates.additive;
        if constexpr (requires { keys.lr_multiplicative; })
          keys.lr_multiplicative = rates.multiplicative;
      },
      rule.keys().value);
  return rule;
}

}  // namespace mpt
