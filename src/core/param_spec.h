// One entry of the parameter list, from which everything about a parameter is derived: memory,
// initialisation, weight decay, random counters, checkpoints, export and reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace mpt {

enum class ParamKind : uint8_t { kEmbedding, kNorm, kLinear, kHead };
template <>
struct EnumNames<ParamKind> {
  static constexpr std::array<std::string_view, 4> kNames{"embedding", "norm", "linear", "head"};
};

struct ParamSpec {
  std::string name;  // Hugging Face's name
  ParamKind kind;
  int64_t rows;  // logical shape [rows, cols]; a vector is one row
  int64_t cols;
  int64_t physical_rows;  // stored shape; elements beyond the logical shape are always +0
  int64_t physical_cols;
  int64_t fused = 1;       // this and the next fused-1 parameters are stored as one matrix
  bool tied = false;       // an embedding that also serves as the head
  uint32_t tensor_id = 0;  // index in the list; the tensor coordinate of random counters

  [[nodiscard]] int64_t elements() const { return rows * cols; }
  [[nodiscard]] int64_t physical_elements() const { return physical_rows * physical_cols; }
  [[nodiscard]] int rank() const { return kind == ParamKind::kNorm ? 1 : 2; }
};

inline int64_t total_elements(const std::vector<ParamSpec>& specs) {
  int64_t n = 0;
  for (const ParamSpec& spec : specs) n += spec.elements();
  return n;
}

}  // namespace mpt
