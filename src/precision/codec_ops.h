// What encoded weights ask of a device outside the optimizer's step. Written once over Exec
// (codec_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <string_view>

#include "device/ops_registry.h"
#include "precision/encoded_tensor.h"

namespace mpt {

class CodecOps {
 public:
  static constexpr std::string_view kFamily = "operations on encoded weights";
  struct Options {
    Allocator& allocator;  // of the scratch
    int64_t most_rows;     // of the tensors
  };

  virtual ~CodecOps() = default;
  // First encoding, to nearest, of all logical elements: new scales from the values alone.
  virtual void encode(const Tensor& source /* [rows, cols] fp32 */, const EncodedTensor& target) = 0;
  // The value of every logical element, as fp32 or rounded to bf16.
  virtual void decode(const EncodedTensor& source, const Tensor& target /* [rows, cols] */) = 0;
  // To be called after every update of a tensor: moves the tensor's scale where the next step could run out
  // of block scales (docs/numerics.md "Sticky scales"). Nothing where rescales() says so.
  virtual void rescale(const EncodedTensor& tensor) = 0;
};

template <>
std::unique_ptr<CodecOps> make_cpu_ops(const CodecOps::Options& options);

}  // namespace mpt
