#include "optim/rules/muon.h"

#include "core/json/config_fields.h"

namespace mpt {

void Muon::Config::fields(Fields& f) {
  AdamConfig::fields(f);
  f.optional("momentum", momentum,
             {.minimum = 0,
              .maximum = kMaxBelowOne,
              .doc = "decay of the mean gradient of linear layers"});
  f.optional("nesterov", nesterov, {.doc = "orthogonalize one mean ahead"});
}

}  // namespace mpt
