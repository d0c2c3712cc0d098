#include "device/attention.h"

namespace mpt {
namespace {

// Checks a tensor over all tokens: `cols` columns, type `dtype`.
void check_tokens(const AttentionShape& s, const Tensor& t, int64_t cols, DType dtype) {
  check(t.rows == s.batch * s.seq_len && t.cols == cols && t.dtype == dtype,
        "attention over {} x {} tokens: tensor [{},{}] of {}, expected [{},{}] of {}", s.batch,
        s.seq_len, t.rows, t.cols, name_of(t.dtype), s.batch * s.seq_len, cols, name_of(dtype));
}

void check_log_sum_exp(const AttentionShape& s, const Tensor& t) {
  check(t.rows >= s.batch * s.heads && t.cols == s.seq_len && t.dtype == DType::kF32,
        "attention: log-sum-exp [{},{}] of {}, expected [{},{}] of fp32", t.rows, t.cols,
        name_of(t.dtype), s.batch * s.heads, s.seq_len);
}

void check_heads(const AttentionShape& s) {
  check(s.heads == s.key_value_heads || (s.key_value_heads > 0 && s.heads % s.key_value_heads == 0),
        "attention: {} query heads over {} heads of keys and values; expected a multiple", s.heads,
        s.key_value_heads);
}

void check_documents(const AttentionShape& s, const Tensor& t) {
  if (s.scope == AttentionScope::kRow) {
    check(t.data == nullptr, "attention over whole rows: beginnings of documents, expected none");
    return;
  }
  check(t.elements() == s.batch * s.seq_len && t.contiguous() && t.dtype == DType::kI32,
        "attention: beginnings of documents [{},{}] of {}, expected {} of int32", t.rows, t.cols,
        name_of(t.dtype), s.batch * s.seq_len);
}

void check_type(DType dtype) {
  check(dtype == DType::kF32 || dtype == DType::kBF16, "attention over {}, expected fp32 or bf16",
        name_of(dtype));
}

// Each GEMM does D multiply-adds per pair; a head has T (T + 1) / 2 pairs.
double flops_of_gemms(int gemms, const AttentionShape& s) {
  const double pairs =
      double(s.batch) * double(s.heads) * double(s.seq_len) * double(s.seq_len + 1) / 2;
  return gemms * 2.0 * double(s.head_dim) * pairs;
}

}  // namespace

double flops_of(const AttentionForward& call) { return flops_of_gemms(2, call.shape); }
double flops_of(const AttentionBackward& call) { return flops_of_gemms(5, call.shape); }

void check_shapes(const AttentionForward& call) {
  const AttentionShape& s = call.shape;
  check_heads(s);
  check_type(call.qkv.dtype);
  check_tokens(s, call.qkv, s.qkv_width(), call.qkv.dtype);
  check_tokens(s, call.out, s.query_width(), call.qkv.dtype);
  check_log_sum_exp(s, call.log_sum_exp);
  check_documents(s, call.document_begin);
}

void check_shapes(const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  check_heads(s);
  check_type(call.qkv.dtype);
  for (const Tensor& t : {call.qkv, call.d_qkv}) check_tokens(s, t, s.qkv_width(), call.qkv.dtype);
  for (const Tensor& t : {call.out, call.d_out})
    check_tokens(s, t, s.query_width(), call.qkv.dtype);
  check_log_sum_exp(s, call.log_sum_exp);
  check_documents(s, call.document_begin);
}

}  // namespace mpt
