// The `precision` section of a config: which format holds what.
#pragma once

#include "core/json_fields.h"
#include "precision/format.h"

namespace mpt {

struct PrecisionConfig {
  Format weights = Format::kBF16;
  Format compute = Format::kBF16;
  Format optimizer_state = Format::kBF16;
  Format gradient = Format::kBF16;

  bool operator==(const PrecisionConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("weights", weights, {.doc = "format of the master weights, the only copy there is"});
    v.optional("compute", compute, {.doc = "format of the operands of matrix products, and of activations"});
    v.optional("optimizer_state", optimizer_state,
               {.doc = "format in which moments are stored; the update itself is computed in fp32"});
    v.optional("gradient", gradient,
               {.doc = "format of stored gradients; micro-batches accumulate in fp32 and are rounded once"});
  }
};

}  // namespace mpt
