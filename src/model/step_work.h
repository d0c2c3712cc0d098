// What the gradients of a step compute and move, counted from shapes alone: the GEMMs, attention,
// and the passes over memory of all other operations. Without recomputation of activations.
//
// The one table of passes: whoever fuses two of them in llama_block.cpp changes their lines here. A
// test holds it against the operations that a training step runs (tests/train/step_work_test.cpp).
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
  int64_t calls = 0;    // in a micro-batch; of the head: for each chunk of logits
  int64_t inner = 0;    // terms of a sum; 0: the tokens of a micro-batch
  ComputeFormat format{};
  double flops = 0;  // for a token, all calls together
};

// Bytes for a token, all calls together: every tensor that an operation reads or writes, once.
struct PassWork {
  std::string operation;  // its profile scopes: "forward/RMSNorm"
  std::string what;       // beside the scope, in a few words; "" if that says it
  int64_t calls = 0;      // in a micro-batch
  double read = 0, written = 0;
  double transposed = 0;  // written in addition where FP8 GEMMs take rows of k only, as on GPUs

  [[nodiscard]] double bytes() const { return read + written + transposed; }
};

// Of the weights of the linear layers: their casts to FP8, or their decoding. Bytes, all of them
// once.
struct WeightPass {
  double read = 0, written = 0, transposed = 0;
  bool each_micro_batch = false;  // else once a step
};

struct StepWork {
  std::vector<GemmWork> gemms;
  double attention_forward = 0, attention_backward = 0;  // FLOPs for a token
  std::vector<PassWork> passes;
  WeightPass weights;
};

StepWork step_work(const LlamaConfig& config, const PrecisionConfig& precision, int64_t seq_len);

// As `mpretrain plan --json` prints it (docs/formats.md).
nlohmann::ordered_json to_json(const StepWork& work);

}  // namespace mpt
