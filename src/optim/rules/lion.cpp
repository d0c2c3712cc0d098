#include "optim/rules/lion.h"

#include "core/json/config_fields.h"

namespace mpt {

void Lion::Config::fields(Fields& f) {
  AdditiveConfig::fields(f);
  f.optional("beta1", beta1,
             {.minimum = 0,
              .maximum = kMaxBelowOne,
              .doc = "weight of the momentum in the update direction"});
  f.optional("beta2", beta2,
             {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the momentum [0.99]"});
}

}  // namespace mpt
