#include "core/bf16.h"
#include "device/cuda/attention_rows.cuh"
#include "device/cuda/cuda_exec.cuh"
#include "device/cuda/document_bias.h"

namespace mpt {
namespace {

// One store: adjacent keys of one query.
struct WriteBias {
  static constexpr int N = kPack<bf16>;
  static_assert(N == kBiasPackElements);

  const int32_t* document_begin;
  bf16* bias;
  int64_t packs;  // per query

  __device__ void operator()(int64_t i) const {
    const int64_t query = i / packs, first = i % packs * N;
    const int64_t begin = document_begin[query];
    float numbers[N];
    for (int j = 0; j < N; ++j) numbers[j] = first + j < begin ? kUnseenBias : 0.0f;
    store_rounded(bias + i * N, numbers);
  }
};

}  // namespace

void write_document_bias(const DocumentBias& call, CUstream_st* stream) {
  const int64_t packs = document_bias_stride(call.tokens) / WriteBias::N;
  CudaExec{stream}.elements(call.sequences * call.tokens * packs,
                            WriteBias{call.document_begin, static_cast<bf16*>(call.bias), packs});
}

}  // namespace mpt
