// Operations on encoded weights outside the optimizer step. Written once over Exec (codec_ops_on.h)
// and instantiated per backend.
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
    Allocator& allocator;  // for scratch
    int64_t most_rows;     // over all tensors
  };

  virtual ~CodecOps() = default;
  // First encoding of all logical elements, rounded to nearest; derives scales from the values
  // only.
  virtual void encode(const Tensor& source /* [rows, cols] fp32 */,
                      const EncodedTensor& target) = 0;
  // Decodes every logical element to fp32, or rounds it to bf16.
  virtual void decode(const EncodedTensor& source, const Tensor& target /* [rows, cols] */) = 0;
  // Call after every update of a tensor: moves the tensor's scale if the next step could run out of
  // block scales (docs/numerics.md "Sticky scales"). No-op for formats whose rescales() is false.
  virtual void rescale(const EncodedTensor& tensor) = 0;
  // mean += share (weight - mean), in FP32, over the update blocks `own` of `weights`; other
  // elements of `mean` [rows, cols] need not exist.
  virtual void follow(const EncodedTensor& weights, BlockRange own, const Tensor& mean,
                      float share) = 0;
};

template <>
std::unique_ptr<CodecOps> make_cpu_ops(const CodecOps::Options& options);

}  // namespace mpt
