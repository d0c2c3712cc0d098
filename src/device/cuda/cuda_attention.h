// Which attention a GPU uses: cuDNN's fused kernels where they take the shape and the storage type, batched
// matrix products elsewhere.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "core/enum_names.h"
#include "device/attention.h"

struct CUstream_st;

namespace mpt {

enum class CudaAttention : uint8_t {
  kAuto,     // cuDNN where it takes the shape; where it does not, an info line says why, once per shape
  kCudnn,    // cuDNN or an Error
  kProducts  // products always
};
template <>
struct EnumNames<CudaAttention> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "cudnn", "products"};
};

// Whether this build has cuDNN's attention at all.
bool has_cudnn_attention();

// Without a stream it only plans: reserve() needs no GPU then. Throws Error for kCudnn in a build without it.
std::unique_ptr<Attention> make_cuda_attention(CUstream_st* stream,
                                               CudaAttention kind = CudaAttention::kAuto);

}  // namespace mpt
