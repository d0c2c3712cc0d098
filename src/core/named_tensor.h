// A tensor with the name under which it is saved: what models and optimizers hand to checkpoints.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace mpt {

struct NamedTensor {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight", "m/model.norm.weight"
  Tensor tensor;     // logical elements (padding excluded by its stride)
  int rank = 2;      // 1: saved with shape [cols], 2: with shape [rows, cols]

  [[nodiscard]] std::vector<int64_t> shape() const {
    return rank == 1 ? std::vector{tensor.cols} : std::vector{tensor.rows, tensor.cols};
  }
};

}  // namespace mpt
