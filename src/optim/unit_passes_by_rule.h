// The passes over units of each rule on one backend, compiled in source files of their own so that they
// compile side by side: src/optim/cpu/units_<rule>.cpp and src/optim/cuda/units_<rule>.cu.
#pragma once

#include "optim/unit_passes.h"
#include "optim/update_ops.h"

// Those of a rule with every format and rounding of weights; `linkage` is extern to declare them.
#define MPT_UNIT_PASSES(linkage, exec, ...)                                         \
  linkage template struct UnitPasses<exec, UpdateUnit<__VA_ARGS__, ElementCodec>>;  \
  linkage template struct UnitPasses<exec, UpdateUnit<__VA_ARGS__, BlockFp8Codec>>; \
  linkage template struct UnitPasses<exec, UpdateUnit<__VA_ARGS__, Nvfp4Codec>>;    \
  linkage template struct UnitPasses<exec, KahanUnit<KahanFused<__VA_ARGS__>>>;

// What those files hold, for the file that calls it.
#define MPT_UNIT_PASSES_COMPILED_APART(exec)                           \
  MPT_UNIT_PASSES(extern, exec, AdamW)                                 \
  MPT_UNIT_PASSES(extern, exec, Madam)                                 \
  MPT_UNIT_PASSES(extern, exec, MPlusAdamScale<DenseDirection>)        \
  MPT_UNIT_PASSES(extern, exec, MPlusAdamExponent<DenseDirection>)     \
  MPT_UNIT_PASSES(extern, exec, MPlusAdamScale<ProjectedDirection>)    \
  MPT_UNIT_PASSES(extern, exec, MPlusAdamExponent<ProjectedDirection>) \
  extern template struct UnitPasses<exec, KahanUnit<KahanPerOpAdamW>>;
