// Work and memory traffic of a step's gradients, counted only from shapes: the GEMMs, attention,
// and the passes over memory of all other operations. Without recomputation of activations.
//
// This is the only table of passes: to fuse two of them in llama_block.cpp, change their lines
// here. A test compares it with the operations that a training step runs
// (tests/plan/step_work_test.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/llama_config.h"
#include "precision/precision_config.h"

namespace mpt {

struct GemmWork {
  std::string linear;   // "qkv", "o", "gate_up", "down" or "lm_head"
  std::string product;  // "y", "dx" or "dW"
  int64_t calls = 0;    // in a micro-batch; for the head: per chunk of logits
  int64_t inner = 0;    // terms of a sum; 0: the tokens of a micro-batch
  ComputeFormat format{};
  double flops = 0;  // per token, all calls together
};

// Bytes per token, all calls together: every tensor that an operation reads or writes, once.
struct PassWork {
  std::string operation;  // its profile scopes: "forward/RMSNorm"
  std::string what;       // details, in a few words; "" if the scope says it all
  int64_t calls = 0;      // in a micro-batch
  double read = 0, written = 0;
  double transposed = 0;  // written in addition where FP8 GEMMs take only rows of k, as on GPUs

  [[nodiscard]] double bytes() const { return read + written + transposed; }
};

// Casts to FP8, or decoding, of the weights of the linear layers. Bytes, each of them counted once.
struct WeightPass {
  double read = 0, written = 0, transposed = 0;
  bool each_micro_batch = false;  // else once per step
};

struct StepWork {
  std::vector<GemmWork> gemms;
  double attention_forward = 0, attention_backward = 0;  // FLOPs per token
  std::vector<PassWork> passes;
  WeightPass weights;
};

StepWork step_work(const LlamaConfig& config, const PrecisionConfig& precision, int64_t seq_len);

// Output of `mpretrain plan --json` (docs/formats.md).
nlohmann::ordered_json to_json(const StepWork& work);

}  // namespace mpt
