// Decoding token by token gives the logits of the whole sequence at once.
#include "model/llama_decoder.h"

#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"
#include "support/expect_error.h"

namespace mpt::test {
namespace {

using Logits = std::vector<float>;

struct Decoding {
  GoldenModel golden;
  ModelBench bench;
  LlamaDecoder decoder;

  Decoding(const char* name, DType storage, int64_t positions)
      : golden(load_golden(name)),
        bench(
            golden.config,
            {.micro_batch = {1, golden.batch.seq_len}, .storage = storage, .keep = Keep::kNothing}),
        decoder(golden.config, {.storage = storage, .max_positions = positions}, bench.store(),
                bench.device(), bench.allocator()) {
    bench.set_weights(golden.weights);
  }

  [[nodiscard]] std::span<const int32_t> row(int64_t i) const { return golden.rows(i, 1).tokens; }
  Logits decoded(std::span<const int32_t> tokens) {
    Logits all;
    for (const int32_t token : tokens) {
      const Logits one = decoder.next_logits(token);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  // Returns those of the golden file, in float64.
  [[nodiscard]] Logits exact(int64_t i) const {
    const int64_t count = golden.batch.seq_len * golden.config.vocab_size;
    return {golden.logits.begin() + i * count, golden.logits.begin() + (i + 1) * count};
  }
};

// Both compute the same sums in another order. The cost of float32 summation here is known: another
// implementation in float32 (PyTorch) is within 7.2e-6 of the exact logits
// (tests/golden/README.md), and so may each of the two be.
constexpr double kFp32Apart = 2 * 7.2e-6;

double largest_difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(double(a[i]) - double(b[i])));
  return most;
}

TEST(LlamaDecoder, Fp32EqualsTheWholeSequence) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    Decoding d(name, DType::kF32, load_golden(name).batch.seq_len);
    for (int64_t i = 0; i < d.golden.batch.rows; ++i) {
      d.decoder.reset();
      const Logits decoded = d.decoded(d.row(i));
      EXPECT_LE(largest_difference(decoded, d.bench.llama().logits(d.row(i))), kFp32Apart)
          << name << " " << i;
      EXPECT_LE(largest_difference(decoded, d.exact(i)), 7.2e-6) << name << " " << i;
    }
  }
}

// In bf16 another order of a sum may round an activation the other way: the distance of the decoder
// from the whole sequence is at most that of the sequence from the exact logits, and its distance
// from the exact ones at most twice that.
TEST(LlamaDecoder, Bf16EqualsTheWholeSequence) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    Decoding d(name, DType::kBF16, load_golden(name).batch.seq_len);
    for (int64_t i = 0; i < d.golden.batch.rows; ++i) {
      d.decoder.reset();
      const Logits whole = d.bench.llama().logits(d.row(i)), decoded = d.decoded(d.row(i));
      const double rounding = deviation(whole, d.exact(i)).relative_norm;
      EXPECT_GT(rounding, kBf16Rounding / 2) << "rounds like bf16";
      EXPECT_LE(deviation(decoded, whole).relative_norm, rounding) << name << " " << i;
      EXPECT_LE(deviation(decoded, d.exact(i)).relative_norm, 2 * rounding) << name << " " << i;
    }
  }
}

// The bounds above must catch one more token in the cache, and with it another position.
TEST(LlamaDecoder, BoundsSeeOneTokenInTheCache) {
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    Decoding d("llama_tiny", storage, 14);
    const Logits whole = d.bench.llama().logits(d.row(0));
    d.decoder.next_logits(d.row(0)[0]);
    const Logits shifted = d.decoded(d.row(0));
    EXPECT_GT(largest_difference(shifted, whole), 100 * kFp32Apart);
    EXPECT_GT(deviation(shifted, whole).relative_norm,
              2 * deviation(whole, d.exact(0)).relative_norm);
  }
}

TEST(LlamaDecoder, ResetForgets) {
  Decoding d("llama_tiny", DType::kF32, 13);
  const Logits first = d.decoded(d.row(1));
  EXPECT_EQ(d.decoder.position(), 13);
  d.decoder.reset();
  EXPECT_EQ(d.decoder.position(), 0);
  d.decoded(d.row(0).first(5));
  d.decoder.reset();
  EXPECT_EQ(d.decoded(d.row(1)), first);
}

TEST(LlamaDecoder, FullCacheIsAnError) {
  Decoding d("llama_tiny", DType::kF32, 2);
  d.decoded(d.row(0).first(2));
  EXPECT_ERROR(d.decoder.next_logits(1), "context is full", "2 tokens");
  EXPECT_EQ(d.decoder.position(), 2);
}

TEST(LlamaDecoder, ForeignTokensAreABug) {
  Decoding d("llama_tiny", DType::kF32, 2);
  EXPECT_THROW(d.decoder.next_logits(61), LogicError);
  EXPECT_THROW(d.decoder.next_logits(-1), LogicError);
}

TEST(LlamaDecoder, PlansWithoutAllocating) {
  const GoldenModel golden = load_golden("llama_tiny");
  const auto device = make_cpu_device(1);
  PlanningAllocator plan;
  const WeightStore weights(
      llama_parameters(golden.config),
      {.storage = DType::kF32, .gradient = DType::kF32, .gradients = Gradients::kNone}, *device,
      plan);
  const LlamaDecoder decoder(golden.config, {.storage = DType::kF32, .max_positions = 7}, weights,
                             *device, plan);
  EXPECT_GE(plan.use().of(kActivationMemory), 2 * 2 * 7 * 32 * 4);
}

}  // namespace
}  // namespace mpt::test
