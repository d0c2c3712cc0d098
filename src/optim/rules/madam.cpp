#include "optim/rules/madam.h"

#include "core/json/config_fields.h"

namespace mpt {

void Madam::Config::fields(Fields& f) {
  f.required(
      "lr_multiplicative", lr_multiplicative,
      {.minimum = 0, .maximum = kMaxReal, .doc = "peak learning rate of the multiplicative step"});
  f.optional("beta2", beta2,
             {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the second moments [0.98]"});
  f.optional("bias_correction", bias_correction, {.doc = "divide moments by 1 - beta^t"});
  f.optional("p_scale", p_scale,
             {.exclusive_minimum = 0,
              .maximum = kMaxReal,
              .doc = "bound on |weight| in multiples of the tensor's initial RMS"});
  f.optional("g_bound", g_bound,
             {.exclusive_minimum = 0,
              .maximum = kMaxReal,
              .doc = "bound on the normalised gradient; lr_multiplicative * g_bound must be at "
                     "most 0.25"});
}

}  // namespace mpt
