// The passes over units on a GPU: one source file for each rule, so that they compile side by side.
#pragma once

#include "device/cuda/cuda_exec.cuh"
#include "optim/unit_passes.h"
#include "optim/update_ops.h"

// Those of a rule with every format and rounding of weights; `linkage` is extern to declare them.
#define MPT_UNIT_PASSES(linkage, ...)                                                   \
  linkage template struct UnitPasses<CudaExec, UpdateUnit<__VA_ARGS__, ElementCodec>>;  \
  linkage template struct UnitPasses<CudaExec, UpdateUnit<__VA_ARGS__, BlockFp8Codec>>; \
  linkage template struct UnitPasses<CudaExec, UpdateUnit<__VA_ARGS__, Nvfp4Codec>>;    \
  linkage template struct UnitPasses<CudaExec, KahanUnit<KahanFused<__VA_ARGS__>>>;
