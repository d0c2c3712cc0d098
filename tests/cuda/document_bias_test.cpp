// The bias that keeps cuDNN's attention within documents: every number of it, and its size in
// bytes.
#include "device/cuda/document_bias.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/bf16.h"
#include "cuda/gpu.h"

namespace mpt {
namespace {

AttentionShape documents(int64_t batch, int64_t tokens) {
  return {.batch = batch,
          .seq_len = tokens,
          .heads = 3,
          .key_value_heads = 1,
          .head_dim = 8,
          .scope = AttentionScope::kDocument};
}

class DocumentBiasTest : public test::GpuTest {
 protected:
  static constexpr uint16_t kUntouched = 0x7fff;

  // Includes the memory after the last number.
  static std::vector<bf16> bias_of(const std::vector<int32_t>& begin, int64_t sequences) {
    test::Gpu gpu;
    const int64_t tokens = std::ssize(begin) / sequences;
    const int64_t n = std::ssize(begin) * document_bias_stride(tokens);
    std::vector<bf16> bias(size_t(n + kBiasPackElements), bf16{kUntouched});
    std::byte* const on_gpu = gpu.allocator().bytes({"bias"}, std::ssize(bias) * 2);
    std::byte* const begin_on_gpu = gpu.allocator().bytes({"begin"}, std::ssize(begin) * 4);
    gpu.write(on_gpu, bias.data(), std::ssize(bias) * 2);
    gpu.write(begin_on_gpu, begin.data(), std::ssize(begin) * 4);
    write_document_bias({.document_begin = reinterpret_cast<const int32_t*>(begin_on_gpu),
                         .sequences = sequences,
                         .tokens = tokens,
                         .bias = on_gpu},
                        gpu.stream());
    gpu.read(bias.data(), on_gpu, std::ssize(bias) * 2);
    return bias;
  }
};

TEST_F(DocumentBiasTest, HidesTheKeysBeforeADocument) {
  for (const int64_t tokens : {1, 2, 7, 8, 9, 64, 129}) {
    // The first sequence is one document, the second is split at odd positions, the third
    // everywhere.
    std::vector<int32_t> begin;
    for (int32_t t = 0; t < tokens; ++t) begin.push_back(0);
    for (int32_t t = 0; t < tokens; ++t) begin.push_back(t < 3 ? 0 : t < 70 ? 3 : 70);
    for (int32_t t = 0; t < tokens; ++t) begin.push_back(t);
    const std::vector<bf16> bias = bias_of(begin, 3);
    const int64_t stride = document_bias_stride(tokens);
    for (int64_t query = 0; query < std::ssize(begin); ++query)
      for (int64_t key = 0; key < tokens; ++key)
        ASSERT_EQ(to_float(bias[size_t(query * stride + key)]),
                  key < begin[size_t(query)] ? kUnseenBias : 0.0f)
            << tokens << " tokens, row " << query << ", key " << key;
    for (int64_t i = std::ssize(begin) * stride; i < std::ssize(bias); ++i)
      ASSERT_EQ(bias[size_t(i)].bits, kUntouched);
  }
}

// Exact in bf16; next to a visible score, a hidden one contributes nothing.
TEST(DocumentBias, HidesAnyScore) {
  EXPECT_EQ(to_float(from_float<bf16>(kUnseenBias)), kUnseenBias);
  EXPECT_EQ(std::exp(1e6f + kUnseenBias - -1e6f), 0.0f);
}

TEST(DocumentBias, TakesWholeStores) {
  EXPECT_EQ(document_bias_bytes(documents(4, 1024)), int64_t{4} * 1024 * 1024 * 2);
  EXPECT_EQ(document_bias_bytes(documents(1, 129)), align_up(129 * 136 * 2, kBiasAlignment));
  AttentionShape rows = documents(4, 1024);
  rows.scope = AttentionScope::kRow;
  EXPECT_EQ(document_bias_bytes(rows), 0);
}

}  // namespace
}  // namespace mpt
