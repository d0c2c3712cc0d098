#include "optim/rules/additive_twin.h"

#include "core/json/config_fields.h"

namespace mpt {

void AdditiveTwin::Config::fields(Fields& f) {
  AdamConfig::fields(f);
  f.optional("gradient_ratio", gradient_ratio,
             {.minimum = 0,
              .maximum = kMaxReal,
              .doc = "weight of the gradient relative to its mean; lr_multiplicative / lr_additive "
                     "of the M+Adam it is the twin of"});
}

}  // namespace mpt
