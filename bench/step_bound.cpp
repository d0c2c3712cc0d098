#include "step_bound.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/normal.h"
#include "core/random.h"
#include "machine_limits.h"
#include "model/parameters.h"

namespace mpt {
namespace {

// The memory of both rings is four times the last-level cache.
int64_t ring_bytes(std::span<const GemmCall> calls) {
  int64_t largest = 0;
  for (const GemmCall& call : calls)
    for (const Tensor* t : {&call.a, &call.b, &call.d}) largest = std::max(largest, t->bytes());
  return align_up(std::max(int64_t{stream_array_bytes()} / 2, 2 * largest), kAlignment);
}

// Normally distributed numbers with a period of 4096.
void fill(const Tensor& memory) {
  constexpr int64_t kCount = 4096;
  std::vector<float> numbers(kCount);
  fill_normals({.seed = 0, .tensor = 0, .row = 0, .step = 0, .stream = kSyntheticStream}, 1.0,
               kCount, numbers.data());
  for (int64_t i = 0; i < memory.cols; i += kCount)
    std::copy_n(numbers.data(), std::min(kCount, memory.cols - i), memory.as<float>() + i);
}

}  // namespace

std::vector<PassBytes> fused_passes(const LlamaConfig& config, int64_t tokens) {
  const auto n = double(tokens), c = double(config.hidden_size),
             layers = double(config.num_hidden_layers), v = double(config.vocab_size),
             f = double(padded_intermediate_size(config)),
             p = double(total_elements(llama_parameters(config)));
  std::vector<PassBytes> passes{{"embedding", n * c + std::min(n, v) * c},
                                {"RMSNorm", 2 * n * c + 2 * layers * 4 * n * c},
                                {"RoPE", layers * 4 * n * c},
                                {"SwiGLU", layers * 3 * n * f},
                                {"cross entropy", 2 * n * v},
                                {"zero", n * c},
                                {"RMSNorm backward", (2 * layers + 1) * 4 * n * c},
                                {"SwiGLU backward", layers * 5 * n * f},
                                {"RoPE backward", layers * 4 * n * c},
                                {"embedding backward", n * c + v * c},
                                {"gradient norm", p},
                                {"AdamW", 7 * p}};
  for (PassBytes& pass : passes) pass.bytes *= sizeof(float);
  return passes;
}

double attention_flops(const LlamaConfig& config, int64_t tokens, int64_t seq_len) {
  const AttentionShape shape{.batch = tokens / seq_len,
                             .seq_len = seq_len,
                             .heads = config.num_attention_heads,
                             .key_value_heads = config.key_value_heads(),
                             .head_dim = config.head_dim()};
  return double(config.num_hidden_layers) *
         (flops_of(AttentionForward{shape, {}, {}, {}}) +
          flops_of(AttentionBackward{shape, {}, {}, {}, {}, {}}));
}

GemmCall large_gemm() {
  const Tensor square{nullptr, DType::kF32, 1024, 1024, 1024};
  return {.a = square, .b = square, .d = square, .transpose_b = Transpose::kYes};
}

// --- GEMMs ------------------------------------------------------------------------------------

Tensor ColdGemms::Ring::place_for(const Tensor& shape) {
  const int64_t bytes = align_up(shape.bytes(), kAlignment);
  if (next + bytes > memory.bytes()) next = 0;
  Tensor place = shape;
  place.data = memory.data + next;
  next += bytes;
  return place;
}

ColdGemms::ColdGemms(Device& device, std::span<const GemmCall> calls)
    : device_(device), allocator_(device.make_allocator()) {
  for (const GemmCall& call : calls)
    check(call.a.dtype == DType::kF32 && call.b.dtype == DType::kF32 && call.d.dtype == DType::kF32,
          "replay of GEMMs of {} and {} into {}; expected fp32", name_of(call.a.dtype),
          name_of(call.b.dtype), name_of(call.d.dtype));
  const int64_t bytes = ring_bytes(calls);
  for (Ring* ring : {&operands_, &results_}) {
    ring->memory = allocator_->tensor(kScratchMemory, DType::kF32, 1, bytes / 4);
    fill(ring->memory);
  }
  device_.gemm().reserve(*allocator_, calls);
}

double ColdGemms::seconds(std::span<const GemmCall> calls, Gemm& gemm) {
  const auto start = std::chrono::steady_clock::now();
  for (GemmCall call : calls) {
    call.a = operands_.place_for(call.a);
    call.b = operands_.place_for(call.b);
    call.d = results_.place_for(call.d);
    gemm.run(call);
  }
  device_.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mpt
