// Operations of a training step, one at a time: passes over activations, attention, GEMMs and
// casts.
//
//   GOMP_SPINCOUNT=2000 ops_bench --benchmark_filter=swiglu
// Names: <operation>/<shape>/<storage type>, shapes from shapes.h. Attention counts the causal half
// of its GEMMs: two forward and five backward, including the recomputed scores. Counters: GB/s of
// the bytes that must move at least, each operand once, and the percentage of the rate of memory
// read and written in place; or GFLOP/s and the percentage of the rate of multiply-adds in
// registers. pair_kernel/<instruction>: the GEMM kernel for pairs of BF16 numbers, with operands in
// the L1 cache.
#include <numeric>

#include "device/cpu/bf16_kernel.h"
#include "model/formulas/rope_table.h"
#include "model/llama.h"
#include "model/parameters.h"
#include "operation.h"
#include "precision/codec_ops.h"
#include "precision/fp8_ops.h"
#include "shapes.h"

namespace mpt {
namespace {

// Legend: N tokens, C hidden, F stored MLP width, V vocabulary.
struct Sizes {
  int64_t n, c, f, v;
  int64_t chunk;  // tokens whose logits exist at a time
  double width;   // bytes of a stored number

  Sizes(const Shape& s, DType type)
      : n(s.tokens()),
        c(s.hidden),
        f(padded_intermediate_size(s.model())),
        v(s.vocab),
        chunk(default_loss_chunk_rows(s.model(), {.rows = s.batch, .seq_len = s.seq_len})),
        width(double(size_of(type))) {}
};

using MakeOperation = Operation (*)(Workbench&, const Shape&, DType);
struct NamedOperation {
  const char* name;
  MakeOperation make;
};

// --- passes over activations ---------------------------------------------------------------------

Operation norm_forward(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return w.in_turn(4 * double(s.n * s.c) * s.width, [&] {
    const NormForwardCall call{.residual = w.normals(type, s.n, s.c),
                               .branch = w.normals(type, s.n, s.c),
                               .sum = w.zeros(type, s.n, s.c),
                               .out = w.zeros(type, s.n, s.c),
                               .inv_rms = w.zeros(DType::kF32, 1, s.n),
                               .gain = w.normals(type, 1, s.c),
                               .eps = 1e-6f};
    return [&w, call] { w.ops().norm_forward(call); };
  });
}

Operation norm_backward(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  const Tensor partial = w.zeros(DType::kF32, w.ops().norm_chunks(s.n), s.c);
  return w.in_turn(4 * double(s.n * s.c) * s.width, [&] {
    const NormBackwardCall call{.d_out = w.normals(type, s.n, s.c),
                                .x = w.normals(type, s.n, s.c),
                                .inv_rms = w.normals(DType::kF32, 1, s.n),
                                .gain = w.normals(type, 1, s.c),
                                .d_x = w.zeros(type, s.n, s.c),
                                .d_gain_partial = partial,
                                .d_gain = w.zeros(type, 1, s.c),
                                .accumulate = Accumulate::kNo};
    return [&w, call] { w.ops().norm_backward(call); };
  });
}

Operation rope(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  const RopeTable table(shape.model(), shape.seq_len, w.device(), w.allocator());
  return w.in_turn(4 * double(s.n * s.c) * s.width, [&] {
    const RopeCall call{.qkv = w.normals(type, s.n, 3 * s.c),
                        .cosine = table.cosine,
                        .sine = table.sine,
                        .rotated_heads = 2 * shape.heads,
                        .head_dim = s.c / shape.heads,
                        .seq_len = shape.seq_len};
    return [&w, call] { w.ops().rope(call); };
  });
}

Operation swiglu_forward(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return w.in_turn(3 * double(s.n * s.f) * s.width, [&] {
    const Tensor gate_up = w.normals(type, s.n, 2 * s.f), out = w.zeros(type, s.n, s.f);
    return [&w, gate_up, out] { w.ops().swiglu_forward(gate_up, out); };
  });
}

// Gradients overwrite gates and ups repeatedly: zeros stay zeros; other values would overflow, or
// become subnormal and so take longer.
Operation swiglu_backward(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return w.in_turn(5 * double(s.n * s.f) * s.width, [&] {
    const Tensor gate_up = w.normals(type, s.n, 2 * s.f), d_out = w.zeros(type, s.n, s.f);
    return [&w, gate_up, d_out] { w.ops().swiglu_backward(gate_up, d_out); };
  });
}

Tensor random_tokens(Workbench& w, const Sizes& s, int64_t count) {
  const RandomCounter counter{1, 0, 0, 0, kSyntheticStream};
  const Tensor tokens = w.zeros(DType::kI32, 1, count);
  for (int64_t i = 0; i < count; ++i)
    tokens.as<int32_t>()[i] = int32_t(uint64_t{counter.word(uint32_t(i))} * uint64_t(s.v) >> 32);
  return tokens;
}

// Losses, and their gradients in place of the logits.
Operation cross_entropy(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  const Tensor scale = w.zeros(DType::kF32, 1, 1), targets = random_tokens(w, s, s.chunk);
  *scale.as<float>() = 1;
  return w.in_turn(2 * double(s.chunk * s.v) * s.width, [&] {
    const CrossEntropyCall call{.logits = w.normals(type, s.chunk, s.v),
                                .targets = targets,
                                .losses = w.zeros(DType::kF32, 1, s.chunk),
                                .gradient_scale = scale.as<float>()};
    return [&w, call] { w.ops().cross_entropy(call); };
  });
}

Operation embedding_forward(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  const Tensor tokens = random_tokens(w, s, s.n);
  return w.in_turn(2 * double(s.n * s.c) * s.width, [&] {
    const Tensor table = w.normals(type, s.v, s.c), out = w.zeros(type, s.n, s.c);
    return [&w, table, tokens, out] { w.ops().embedding_forward(table, tokens, out); };
  });
}

// Writes the whole gradient of the table, most of which is zero.
Operation embedding_backward(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  const Tensor tokens = random_tokens(w, s, s.n);
  const Tensor uses = w.zeros(DType::kI32, 1, s.n), first = w.zeros(DType::kI32, 1, s.v + 1);
  std::iota(uses.as<int32_t>(), uses.as<int32_t>() + s.n, 0);
  std::stable_sort(uses.as<int32_t>(), uses.as<int32_t>() + s.n, [&](int32_t a, int32_t b) {
    return tokens.as<int32_t>()[a] < tokens.as<int32_t>()[b];
  });
  w.ops().find_first_uses(tokens, uses, first);
  return w.in_turn(double((s.n + s.v) * s.c) * s.width, [&] {
    const EmbeddingBackwardCall call{.d_out = w.normals(type, s.n, s.c),
                                     .first = first,
                                     .uses = uses,
                                     .d_table = w.zeros(type, s.v, s.c),
                                     .accumulate = Accumulate::kNo};
    return [&w, call] { w.ops().embedding_backward(call); };
  });
}

constexpr std::array<NamedOperation, 8> kPasses{{{"norm_forward", norm_forward},
                                                 {"norm_backward", norm_backward},
                                                 {"rope", rope},
                                                 {"swiglu_forward", swiglu_forward},
                                                 {"swiglu_backward", swiglu_backward},
                                                 {"cross_entropy", cross_entropy},
                                                 {"embedding_forward", embedding_forward},
                                                 {"embedding_backward", embedding_backward}}};

// --- attention -----------------------------------------------------------------------------------

// FLOPs of one GEMM of the size of the scores, its causal half.
double half_gemm(const Shape& s) {
  return double(s.tokens()) * double(s.seq_len) * double(s.hidden);
}

AttentionForward attention_call(Workbench& w, const Shape& shape, DType type) {
  const AttentionShape heads{shape.batch, shape.seq_len, shape.heads, shape.heads,
                             shape.hidden / shape.heads};
  w.device().attention().reserve(w.allocator(), heads, type);
  return {.shape = heads,
          .qkv = w.normals(type, shape.tokens(), 3 * shape.hidden),
          .out = w.zeros(type, shape.tokens(), shape.hidden),
          .log_sum_exp = w.zeros(DType::kF32, shape.batch * shape.heads, shape.seq_len)};
}

Operation attention_forward(Workbench& w, const Shape& shape, DType type) {
  const AttentionForward call = attention_call(w, shape, type);
  return {.call = [&w, call] { w.device().attention().forward(call); },
          .flops = 2 * half_gemm(shape)};
}

Operation attention_backward(Workbench& w, const Shape& shape, DType type) {
  const AttentionForward forward = attention_call(w, shape, type);
  w.device().attention().forward(forward);
  const AttentionBackward call{.shape = forward.shape,
                               .qkv = forward.qkv,
                               .out = forward.out,
                               .log_sum_exp = forward.log_sum_exp,
                               .d_out = w.normals(type, shape.tokens(), shape.hidden),
                               .d_qkv = w.zeros(type, shape.tokens(), 3 * shape.hidden)};
  return {.call = [&w, call] { w.device().attention().backward(call); },
          .flops = 5 * half_gemm(shape)};
}

constexpr std::array<NamedOperation, 2> kAttention{
    {{"attention_forward", attention_forward}, {"attention_backward", attention_backward}}};

// --- GEMMs ------------------------------------------------------------------------------------

enum class GemmPass { kForward, kInputGradient, kWeightGradient };

struct LinearLayer {
  const char* name;
  int64_t rows, in, out;
};

std::vector<LinearLayer> linear_layers(const Shape& shape) {
  const Sizes s(shape, DType::kF32);
  return {{"qkv", s.n, s.c, 3 * s.c},
          {"o", s.n, s.c, s.c},
          {"gate_up", s.n, s.c, 2 * s.f},
          {"down", s.n, s.f, s.c},
          {"head", s.chunk, s.c, s.v}};
}

// Types of x and W, of dY, and of results, for GEMMs in a type.
struct GemmTypes {
  const char* name;
  DType operand, gradient, result;
};
constexpr std::array<GemmTypes, 3> kGemmTypes{{{"fp32", DType::kF32, DType::kF32, DType::kF32},
                                               {"bf16", DType::kBF16, DType::kBF16, DType::kBF16},
                                               {"fp8", DType::kE4M3, DType::kE5M2, DType::kBF16}}};

// y = x W^T, dx = dy W, dW = dy^T x.
GemmCall gemm_call(Workbench& w, const LinearLayer& linear, const GemmTypes& types, GemmPass pass) {
  const auto x = [&] { return w.normals(types.operand, linear.rows, linear.in); };
  const auto weight = [&] { return w.normals(types.operand, linear.out, linear.in); };
  const auto d_y = [&] { return w.normals(types.gradient, linear.rows, linear.out); };
  const auto result = [&](int64_t rows, int64_t cols) { return w.zeros(types.result, rows, cols); };
  if (pass == GemmPass::kForward)
    return {.a = x(),
            .b = weight(),
            .d = result(linear.rows, linear.out),
            .transpose_b = Transpose::kYes};
  if (pass == GemmPass::kInputGradient)
    return {.a = d_y(), .b = weight(), .d = result(linear.rows, linear.in)};
  return {.a = d_y(), .b = x(), .d = result(linear.out, linear.in), .transpose_a = Transpose::kYes};
}

void add_gemms(const Shape& shape) {
  constexpr std::array<std::pair<const char*, GemmPass>, 3> kGemmPasses{
      {{"forward", GemmPass::kForward},
       {"dX", GemmPass::kInputGradient},
       {"dW", GemmPass::kWeightGradient}}};
  for (const LinearLayer& linear : linear_layers(shape))
    for (const auto& [name, pass] : kGemmPasses)
      for (const GemmTypes& types : kGemmTypes)
        add_operation(fmt::format("gemm_{}_{}/{}/{}", linear.name, name, shape.name, types.name),
                      [linear, types, pass = pass](Workbench& w) -> Operation {
                        const GemmCall call = gemm_call(w, linear, types, pass);
                        w.device().gemm().reserve(w.allocator(), std::array{call});
                        return {.call = [&w, call] { w.device().gemm().run(call); },
                                .flops = 2.0 * double(linear.rows * linear.in * linear.out)};
                      });
}

// --- casts to FP8 --------------------------------------------------------------------------------

// With a constant scale, and amaxes gathered, as in a training step.
Fp8CastCall cast_call(Workbench& w, const EncodedTensor& source, DType target) {
  const Tensor slot = w.normals(DType::kF32, 1, 4);
  float* const numbers = slot.as<float>();
  numbers[0] = 1;
  return {.source = source,
          .through = Format::kBF16,
          .target = w.zeros(target, source.rows, source.cols),
          .slot = {numbers, numbers + 1, numbers + 2, numbers + 3}};
}

Operation cast_of(Workbench& w, int64_t rows, int64_t cols, DType target) {
  const std::shared_ptr<Fp8Ops> fp8 = make_ops<Fp8Ops>(w.device().stream());
  return w.in_turn(3.0 * double(rows * cols), [&] {
    const Fp8CastCall call =
        cast_call(w, encoded_view(w.normals(DType::kBF16, rows, cols)), target);
    return [fp8, call] { fp8->cast(call); };
  });
}

Operation cast_attention(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return cast_of(w, s.n, s.c, DType::kE4M3);
}

Operation cast_gradient(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return cast_of(w, s.n, 2 * s.f, DType::kE5M2);
}

Operation cast_norm(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return w.in_turn(double(s.n * s.c) * (s.width + 1), [&] {
    const NormInput input{.x = w.normals(type, s.n, s.c),
                          .inv_rms = w.normals(DType::kF32, 1, s.n),
                          .gain = w.normals(type, 1, s.c)};
    const Fp8CastCall call = cast_call(w, shape_of_source(s.n, s.c), DType::kE4M3);
    return [&w, input, call] { w.ops().cast(input, call); };
  });
}

Operation cast_swiglu(Workbench& w, const Shape& shape, DType type) {
  const Sizes s(shape, type);
  return w.in_turn(double(s.n * s.f) * (2 * s.width + 1), [&] {
    const SwigluInput input{w.normals(type, s.n, 2 * s.f)};
    const Fp8CastCall call = cast_call(w, shape_of_source(s.n, s.f), DType::kE4M3);
    return [&w, input, call] { w.ops().cast(input, call); };
  });
}

constexpr std::array<NamedOperation, 4> kCasts{{{"cast_attention", cast_attention},
                                                {"cast_gate_up_gradient", cast_gradient},
                                                {"cast_norm", cast_norm},
                                                {"cast_swiglu", cast_swiglu}}};

// Cast of the gates' weights, decoded on the fly.
Operation cast_weights(Workbench& w, const Shape& shape, WeightFormat format) {
  const Sizes s(shape, DType::kBF16);
  const EncodedShape gates{.rows = s.f, .cols = s.c, .physical_rows = s.f, .physical_cols = s.c};
  const std::shared_ptr<Fp8Ops> fp8 = make_ops<Fp8Ops>(w.device().stream());
  const std::unique_ptr<CodecOps> precision =
      make_ops<CodecOps>(w.device().stream(), {w.allocator(), s.f});
  const auto allocate = [&] {
    return allocate_encoded({.format = format}, gates, kScratchMemory, w.allocator());
  };
  const double bytes = double(allocate().logical_bytes() + s.f * s.c);
  return w.in_turn(bytes, [&] {
    const EncodedTensor weights = allocate();
    precision->encode(w.normals(DType::kF32, s.f, s.c), weights);
    const Fp8CastCall call = cast_call(w, weights, DType::kE4M3);
    return [fp8, call] { fp8->cast(call); };
  });
}

// --- instructions for pairs of BF16 numbers ------------------------------------------------------

// Operands of a kernel that fit in the L1 cache, for one thread.
struct PairOperands {
  static constexpr int64_t kColumns = pair_columns(std::max(kAvx512Vectors, kAmxVectors));
  std::vector<Bf16Pair> a = std::vector<Bf16Pair>(kAmxRows * kPairRowStride, 0x3c003c00);
  std::vector<Bf16Pair> b = std::vector<Bf16Pair>(kPairDepth / 2 * kColumns, 0x3c003c00);
  std::vector<float> d = std::vector<float>(kAmxRows * kColumns);
  std::vector<const std::byte*> prefetched = std::vector(
      size_t(kPairDepth / 2 / kPairsPerLine), reinterpret_cast<const std::byte*>(d.data()));

  [[nodiscard]] PairKernelCall call(int rows, int vectors) {
    return {.rows = rows,
            .vectors = vectors,
            .a = {a.data(), kPairRowStride, 1},
            .b = b.data(),
            .pairs = kPairDepth / 2,
            .alpha = 1,
            .accumulate = Accumulate::kNo,
            .d = d.data(),
            .ldd = kColumns,
            .prefetched = prefetched.data()};
  }
};

// Compare with the rate of FP32 multiply-adds in registers: the possible gain of a GEMM from the
// instruction.
Operation pair_kernel(Bf16Dot dot) {
  constexpr int64_t kCalls = 1000;
  const bool amx = dot == Bf16Dot::kAmxBf16;
  const int threads = omp_get_max_threads(), rows = amx ? kAmxRows : kAvx512Rows,
            vectors = amx ? kAmxVectors : kAvx512Vectors;
  auto operands = std::make_shared<std::vector<PairOperands>>(size_t(threads));
  const auto call = [operands, amx, threads, rows, vectors] {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; ++t) {
      const PairKernelCall one = (*operands)[size_t(t)].call(rows, vectors);
      if (amx) {
        const AmxTiles tiles;
        for (int64_t i = 0; i < kCalls; ++i) run_amx_kernel(one);
      } else {
        for (int64_t i = 0; i < kCalls; ++i) run_avx512_kernel(one);
      }
    }
  };
  return {
      .call = call,
      .flops = 2.0 * double(kCalls) * rows * double(pair_columns(vectors)) * kPairDepth * threads};
}

void add_pair_kernels() {
  for (const Bf16Dot dot : {Bf16Dot::kAvx512Bf16, Bf16Dot::kAmxBf16})
    if (why_no_bf16_dot(dot).empty())
      add_operation(fmt::format("pair_kernel/{}", name_of(dot)),
                    [dot](Workbench&) { return pair_kernel(dot); });
}

// --- the list ------------------------------------------------------------------------------------

void add(const NamedOperation& named, const Shape& shape, DType type) {
  add_operation(fmt::format("{}/{}/{}", named.name, shape.name, name_of(type)),
                [&shape, make = named.make, type](Workbench& w) { return make(w, shape, type); });
}

void register_shape(const Shape& shape) {
  for (const NamedOperation& pass : kPasses)
    for (const DType type : {DType::kF32, DType::kBF16}) add(pass, shape, type);
  for (const NamedOperation& cast : kCasts) add(cast, shape, DType::kBF16);
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kBlockFp8, WeightFormat::kNvfp4})
    add_operation(fmt::format("cast_weights/{}/{}", shape.name, name_of(format)),
                  [&shape, format](Workbench& w) { return cast_weights(w, shape, format); });
  add_gemms(shape);
}

void register_all() {
  const auto shape_named = [](std::string_view name) -> const Shape& {
    return *std::ranges::find_if(kShapes, [&](const Shape& shape) { return shape.name == name; });
  };
  for (const char* name : {"A", "E"}) register_shape(shape_named(name));
  add_pair_kernels();
  for (const char* name : {"A", "B", "E"})
    for (const NamedOperation& pass : kAttention)
      for (const DType type : {DType::kF32, DType::kBF16}) add(pass, shape_named(name), type);
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  mpt::register_all();
  return mpt::run_operations(argc, argv);
}
