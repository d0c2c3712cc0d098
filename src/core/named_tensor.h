// A tensor with the name under which it is saved: what models and optimizers hand to checkpoints.
#pragma once

#include <string>
#include <utility>
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

// Consecutive elements of a tensor, as they are packed row after row: what one rank has of it, or all.
struct TensorPart {
  NamedTensor whole;  // only the part's elements need be in memory
  int64_t first = 0;  // element
  int64_t count = 0;  // elements

  [[nodiscard]] bool is_whole() const { return first == 0 && count == whole.tensor.elements(); }
};
inline TensorPart whole_part(NamedTensor tensor) {
  const int64_t elements = tensor.tensor.elements();
  return {std::move(tensor), 0, elements};
}

}  // namespace mpt
