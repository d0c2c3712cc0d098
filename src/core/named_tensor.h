// Named tensors, passed from models and optimizers to checkpoints.
#pragma once

#include <cstdint>
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

// Range of consecutive elements of a tensor in packed order: the part held by one rank, or all of
// it.
struct TensorPart {
  NamedTensor whole;  // only the elements of the part need to be in memory
  int64_t first = 0;  // element
  int64_t count = 0;  // elements

  [[nodiscard]] bool is_whole() const { return first == 0 && count == whole.tensor.elements(); }
};
inline TensorPart whole_part(NamedTensor tensor) {
  const int64_t elements = tensor.tensor.elements();
  return {std::move(tensor), 0, elements};
}

}  // namespace mpt
