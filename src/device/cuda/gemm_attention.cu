#include <algorithm>
#include <cmath>

#include "core/bf16.h"
#include "core/check.h"
#include "device/cuda/attention_rows.cuh"
#include "device/cuda/cuda_attention.h"
#include "device/cuda/cuda_exec.cuh"

namespace mpt {
namespace {

// --- GEMMs over the pairs of a chunk -------------------------------------------------------------

// Consecutive pairs: some heads of one sequence, or all heads of some sequences. All query heads
// that read a key/value head are in the same chunk.
struct Chunk {
  int64_t sequence, sequences, head, heads;
  [[nodiscard]] int64_t pairs() const { return sequences * heads; }
};

// One matrix per pair: the first pair's, and the distances to the next sequence's and head's. Pairs
// with the same keys share theirs.
struct PairMatrices {
  Tensor first;
  int64_t sequence_step, head_step;  // elements
  int64_t readers = 1;               // adjacent heads that share a matrix

  [[nodiscard]] PairMatrices block(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    return {first.row_range(row, rows).columns(col, cols), sequence_step, head_step, readers};
  }
  [[nodiscard]] PairMatrices rows(int64_t row, int64_t count) const {
    return block(row, count, 0, first.cols);
  }
  [[nodiscard]] Tensor of(int64_t sequence, int64_t head) const {
    Tensor one = first;
    one.data += (sequence * sequence_step + head / readers * head_step) * size_of(first.dtype);
    return one;
  }
};

struct PairGemm {
  PairMatrices a, b, d;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  float alpha = 1.0f;
};

// Row stride of a score matrix in fp32 elements: whole accesses of either type.
int64_t score_stride(const AttentionShape& s) { return align_up(s.seq_len, kPack<bf16>); }
int64_t matrix_bytes(const AttentionShape& s) { return s.seq_len * score_stride(s) * 4; }
// A pair's contribution to the gradient of the keys, and later of the values, to be summed.
int64_t part_bytes(const AttentionShape& s) {
  return s.readers() == 1 ? 0 : align_up(s.seq_len * s.head_dim * 4, kAccess);
}
// Scores and their gradients, plus that contribution.
int64_t pair_bytes(const AttentionShape& s) { return 2 * matrix_bytes(s) + part_bytes(s); }

struct ChunkScratch {
  void* workspace;  // for the GEMMs
  float* matrices;
};

class ChunkWork {
 public:
  ChunkWork(StridedGemm& gemm, const ChunkScratch& scratch, const AttentionShape& shape,
            const Chunk& chunk)
      : gemm_(gemm), scratch_(scratch), shape_(shape), chunk_(chunk) {}

  // A part of qkv, or of a tensor with the columns of its first part: [T, D] per pair.
  [[nodiscard]] PairMatrices tokens(const Tensor& t, QkvPart part = QkvPart::kQ) const {
    const int64_t readers = part == QkvPart::kQ ? 1 : shape_.readers();
    const Tensor sequence = t.row_range(chunk_.sequence * shape_.seq_len, shape_.seq_len);
    const int64_t column = first_column(shape_, part) + chunk_.head / readers * shape_.head_dim;
    return {sequence.columns(column, shape_.head_dim), shape_.seq_len * t.stride, shape_.head_dim,
            readers};
  }
  // [T, T] per pair, as GEMMs write it (fp32) or read it (in the storage type).
  [[nodiscard]] PairMatrices scores(DType dtype) const { return square(scratch_.matrices, dtype); }
  [[nodiscard]] PairMatrices d_scores(DType dtype) const {
    return square(scratch_.matrices + chunk_.pairs() * matrix_bytes(shape_) / 4, dtype);
  }
  // [T, D] per pair, fp32.
  [[nodiscard]] PairMatrices parts() const {
    const int64_t elements = part_bytes(shape_) / 4;
    float* const data = scratch_.matrices + chunk_.pairs() * 2 * matrix_bytes(shape_) / 4;
    return {{reinterpret_cast<std::byte*>(data), DType::kF32, shape_.seq_len, shape_.head_dim,
             shape_.head_dim},
            chunk_.heads * elements,
            elements};
  }
  // Sums parts() over the readers of each key/value head into a part of d_qkv.
  template <class T>
  [[nodiscard]] ReaderSums<T> reader_sums(const Tensor& d_qkv, QkvPart part) const {
    return {.parts = parts().first.as<float>(),
            .target = tokens(d_qkv, part).first.as<T>(),
            .sequence_step = shape_.seq_len * d_qkv.stride,
            .token_stride = d_qkv.stride,
            .sequences = chunk_.sequences,
            .key_value_heads = chunk_.heads / shape_.readers(),
            .readers = shape_.readers(),
            .tokens = shape_.seq_len,
            .head_dim = shape_.head_dim};
  }
  [[nodiscard]] ScoreRows score_rows(const Tensor& log_sum_exp,
                                     const Tensor& document_begin) const {
    const int64_t pair = chunk_.sequence * shape_.heads + chunk_.head;
    return {.scores = scratch_.matrices,
            .rows = chunk_.pairs() * shape_.seq_len,
            .tokens = shape_.seq_len,
            .stride = score_stride(shape_),
            .log_sum_exp = log_sum_exp.as<float>() + pair * log_sum_exp.stride,
            .log_sum_exp_stride = log_sum_exp.stride,
            .document_begin = document_begin.data == nullptr
                                  ? nullptr
                                  : document_begin.as<int32_t>() + chunk_.sequence * shape_.seq_len,
            .heads = chunk_.heads};
  }

  // One call per head, or per sequence and reader, whichever is fewer.
  void multiply(const PairGemm& gemm) const {
    const int64_t readers = shape_.readers();
    const bool by_sequence = chunk_.sequences * readers <= chunk_.heads;
    const int64_t calls = by_sequence ? chunk_.sequences * readers : chunk_.heads;
    // One reader per key/value head: these are `readers` heads apart.
    const auto batch = [&](const PairMatrices& m, int64_t call) -> StridedBatch {
      return by_sequence ? StridedBatch{m.of(call / readers, call % readers),
                                        readers / m.readers * m.head_step}
                         : StridedBatch{m.of(0, call), m.sequence_step};
    };
    for (int64_t call = 0; call < calls; ++call)
      gemm_.run({.count = chunk_.pairs() / calls,
                 .a = batch(gemm.a, call),
                 .b = batch(gemm.b, call),
                 .d = batch(gemm.d, call),
                 .transpose_a = gemm.transpose_a,
                 .transpose_b = gemm.transpose_b,
                 .alpha = gemm.alpha},
                scratch_.workspace);
  }

 private:
  [[nodiscard]] PairMatrices square(float* data, DType dtype) const {
    const int64_t stride = score_stride(shape_) * 4 / size_of(dtype),
                  matrix = shape_.seq_len * stride;
    return {{reinterpret_cast<std::byte*>(data), dtype, shape_.seq_len, shape_.seq_len, stride},
            chunk_.heads * matrix,
            matrix};
  }

  StridedGemm& gemm_;
  ChunkScratch scratch_;
  AttentionShape shape_;
  Chunk chunk_;
};

// Calls f(first token, tokens) for every band.
template <class F>
void for_bands(int64_t tokens, const F& f) {
  for (int64_t first = 0; first < tokens; first += GemmAttention::kBand)
    f(first, std::min(GemmAttention::kBand, tokens - first));
}

// `pairs_at_once`: at least the readers of one key/value head.
template <class F>
void for_chunks(const AttentionShape& s, int64_t pairs_at_once, const F& f) {
  if (pairs_at_once < s.heads) {
    const int64_t heads = pairs_at_once / s.readers() * s.readers();
    for (int64_t sequence = 0; sequence < s.batch; ++sequence)
      for (int64_t head = 0; head < s.heads; head += heads)
        f(Chunk{sequence, 1, head, std::min(heads, s.heads - head)});
    return;
  }
  const int64_t sequences = pairs_at_once / s.heads;
  for (int64_t sequence = 0; sequence < s.batch; sequence += sequences)
    f(Chunk{sequence, std::min(sequences, s.batch - sequence), 0, s.heads});
}

float score_scale(const AttentionShape& s) { return 1.0f / std::sqrt(float(s.head_dim)); }

// target[T,T] = scale left right^T, up to the end of each row's band.
void multiply_causal(const ChunkWork& work, const PairMatrices& left, const PairMatrices& right,
                     const PairMatrices& target, float scale) {
  for_bands(left.first.rows, [&](int64_t first, int64_t count) {
    work.multiply({.a = left.rows(first, count),
                   .b = right.rows(0, first + count),
                   .d = target.block(first, count, 0, first + count),
                   .transpose_b = Transpose::kYes,
                   .alpha = scale});
  });
}

// target[T,D] = scale lower right: gathers for every query from the keys up to it.
void gather_from_keys(const ChunkWork& work, const PairMatrices& lower, const PairMatrices& right,
                      const PairMatrices& target, float scale) {
  for_bands(target.first.rows, [&](int64_t first, int64_t count) {
    work.multiply({.a = lower.block(first, count, 0, first + count),
                   .b = right.rows(0, first + count),
                   .d = target.rows(first, count),
                   .alpha = scale});
  });
}

// target[T,D] = scale lower^T right: gathers for every key from the queries from it on.
void gather_from_queries(const ChunkWork& work, const PairMatrices& lower,
                         const PairMatrices& right, const PairMatrices& target, float scale) {
  const int64_t tokens = target.first.rows;
  for_bands(tokens, [&](int64_t first, int64_t count) {
    work.multiply({.a = lower.block(first, tokens - first, first, count),
                   .b = right.rows(first, tokens - first),
                   .d = target.rows(first, count),
                   .transpose_a = Transpose::kYes,
                   .alpha = scale});
  });
}

void forward_chunk(const AttentionForward& call, const ChunkWork& work, cudaStream_t stream) {
  const DType dtype = call.qkv.dtype;
  multiply_causal(work, work.tokens(call.qkv), work.tokens(call.qkv, QkvPart::kK),
                  work.scores(DType::kF32), score_scale(call.shape));
  const ScoreRows rows = work.score_rows(call.log_sum_exp, call.document_begin);
  launch(dtype == DType::kF32 ? softmax_kernel<float> : softmax_kernel<bf16>,
         warp_per_row(rows.rows, stream), rows);
  gather_from_keys(work, work.scores(dtype), work.tokens(call.qkv, QkvPart::kV),
                   work.tokens(call.out), 1.0f);
}

template <class T>
void score_gradients(const AttentionBackward& call, const Chunk& chunk, const ChunkWork& work,
                     cudaStream_t stream) {
  const ScoreRows rows = work.score_rows(call.log_sum_exp, call.document_begin);
  const OutputRows<T> outputs{.out = work.tokens(call.out).first.as<T>(),
                              .d_out = work.tokens(call.d_out).first.as<T>(),
                              .out_stride = call.out.stride,
                              .d_out_stride = call.d_out.stride,
                              .heads = chunk.heads,
                              .head_dim = call.shape.head_dim};
  launch(score_gradients_kernel<T>, warp_per_row(rows.rows, stream), rows,
         work.d_scores(DType::kF32).first.as<float>(), outputs);
}

// A gradient of keys or values. If several heads read them, each leaves its part in FP32.
void gather_for_keys(const AttentionBackward& call, const ChunkWork& work, QkvPart part,
                     const PairMatrices& lower, const PairMatrices& right, float scale,
                     cudaStream_t stream) {
  const bool shared = call.shape.readers() > 1;
  gather_from_queries(work, lower, right, shared ? work.parts() : work.tokens(call.d_qkv, part),
                      scale);
  if (!shared) return;
  const auto sum = [&]<class T>(T) {
    const ReaderSums<T> sums = work.reader_sums<T>(call.d_qkv, part);
    launch(sum_readers_kernel<T>,
           LaunchShape{.blocks = (sums.elements() + kThreadsPerBlock - 1) / kThreadsPerBlock,
                       .threads = kThreadsPerBlock,
                       .stream = stream},
           sums);
  };
  call.qkv.dtype == DType::kF32 ? sum(float{}) : sum(bf16{});
}

void backward_chunk(const AttentionBackward& call, const Chunk& chunk, const ChunkWork& work,
                    cudaStream_t stream) {
  const DType dtype = call.qkv.dtype;
  const float scale = score_scale(call.shape);
  const PairMatrices queries = work.tokens(call.qkv), keys = work.tokens(call.qkv, QkvPart::kK);
  const PairMatrices d_out = work.tokens(call.d_out);
  multiply_causal(work, queries, keys, work.scores(DType::kF32), scale);
  multiply_causal(work, d_out, work.tokens(call.qkv, QkvPart::kV), work.d_scores(DType::kF32),
                  1.0f);
  (dtype == DType::kF32 ? score_gradients<float> : score_gradients<bf16>)(call, chunk, work,
                                                                          stream);
  gather_from_keys(work, work.d_scores(dtype), keys, work.tokens(call.d_qkv), scale);
  gather_for_keys(call, work, QkvPart::kK, work.d_scores(dtype), queries, scale, stream);
  gather_for_keys(call, work, QkvPart::kV, work.scores(dtype), d_out, 1.0f, stream);
}

}  // namespace

GemmAttention::GemmAttention(CUstream_st* stream, const GemmAttentionScratch& most)
    : stream_(stream), most_(most), gemm_(stream, most.workspace) {}

void GemmAttention::reserve(Allocator& allocator, const AttentionShape& shape, DType /*storage*/) {
  const int64_t pair = pair_bytes(shape);
  const int64_t most =
      std::max<int64_t>(most_.matrices / std::max<int64_t>(pair, 1), shape.readers());
  const int64_t pairs = std::min(shape.batch * shape.heads, most);
  scratch_.reserve(allocator, most_.workspace + pairs * pair);
}

int64_t GemmAttention::pairs_at_once(const AttentionShape& shape) const {
  const int64_t pair = pair_bytes(shape), least = shape.readers() * pair;
  const int64_t available = scratch_.bytes() - most_.workspace;
  check(available >= least, "attention over {} tokens needs {} bytes of scratch, reserved {}",
        shape.seq_len, least + most_.workspace, scratch_.bytes());
  return available / pair;
}

void GemmAttention::forward(const AttentionForward& call) {
  check_shapes(call);
  if (call.shape.empty()) return;
  const ChunkScratch scratch{scratch_.floats(), scratch_.floats() + most_.workspace / 4};
  for_chunks(call.shape, pairs_at_once(call.shape), [&](const Chunk& chunk) {
    forward_chunk(call, {gemm_, scratch, call.shape, chunk}, stream_);
  });
}

void GemmAttention::backward(const AttentionBackward& call) {
  check_shapes(call);
  if (call.shape.empty()) return;
  const ChunkScratch scratch{scratch_.floats(), scratch_.floats() + most_.workspace / 4};
  for_chunks(call.shape, pairs_at_once(call.shape), [&](const Chunk& chunk) {
    backward_chunk(call, chunk, {gemm_, scratch, call.shape, chunk}, stream_);
  });
}

}  // namespace mpt
