// Models and batches measured by the benchmarks, each named by a letter.
#pragma once

#include <array>
#include <cstdint>

#include "model/llama_config.h"

namespace mpt {

struct Shape {
  const char* name;
  int64_t hidden, layers, heads, intermediate, vocab, batch, seq_len;

  [[nodiscard]] int64_t tokens() const { return batch * seq_len; }
  [[nodiscard]] LlamaConfig model() const {
    return {.hidden_size = hidden,
            .intermediate_size = intermediate,
            .num_hidden_layers = layers,
            .num_attention_heads = heads,
            .vocab_size = vocab};
  }
};

inline constexpr std::array<Shape, 5> kShapes{{{"A", 256, 4, 4, 688, 4096, 16, 256},
                                               {"B", 256, 4, 4, 688, 4096, 4, 1024},
                                               {"C", 256, 4, 4, 688, 32000, 16, 256},
                                               {"D", 256, 4, 4, 688, 32000, 4, 1024},
                                               {"E", 512, 8, 8, 1376, 32000, 1, 1024}}};

// Steps taken by optimizers before the measured one: like most steps of a run, where bias
// corrections have reached 1.
inline constexpr int64_t kStepsBefore = 1000;

}  // namespace mpt
