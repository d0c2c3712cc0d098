// Elements per second and thread that the codecs of scaled weights decode and encode, one update
// block at a time.
//
//   codec_bench --benchmark_filter=.
#include <vector>

#include <benchmark/benchmark.h>

#include "precision/weight_formats.h"
#include "run_benchmarks.h"

namespace mpt {
namespace {

// One update block of weights in its own memory.
struct WeightBlock {
  std::vector<std::byte> codes = std::vector<std::byte>(kUpdateBlock);
  std::vector<std::byte> scales = std::vector<std::byte>(2 * kUpdateBlock / 16);
  float tensor_scale = 0x1p-8f;

  EncodedTensor view(const WeightEncoding& encoding) {
    return {.encoding = encoding,
            .rows = 1,
            .cols = kUpdateBlock,
            .rank = 2,
            .codes = {codes.data(), DType::kU8, 1, kUpdateBlock, kUpdateBlock},
            .block_scales = {scales.data(), DType::kU8, 1, kUpdateBlock / 16, kUpdateBlock / 16},
            .tensor_scale = {reinterpret_cast<std::byte*>(&tensor_scale), DType::kF32, 1, 1, 1}};
  }
};

enum class Work { kLoad, kStoreNearest, kStoreStochastic };

void run(benchmark::State& state, const WeightEncoding& encoding, Work work) {
  constexpr BlockSpan kSpan{0, 0, kUpdateBlock};
  WeightBlock block;
  float x[kUpdateBlock];
  for (int i = 0; i < kUpdateBlock; ++i) x[i] = float((i * 7919) % 255 - 127) * 0.0123f;
  const DitherSource source{.rounding = work == Work::kStoreStochastic ? Rounding::kStochastic
                                                                       : Rounding::kNearest};
  const auto dither = source.draw(SerialGroup{}, kSpan);  // drawn once: this measures rounding
  with_codec(block.view(encoding), [&](const auto& codec) {
    codec.store(SerialGroup{}, kSpan, x, dither);
    for (auto _ : state) {
      if (work == Work::kLoad)
        codec.load(SerialGroup{}, kSpan, x);
      else
        codec.store(SerialGroup{}, kSpan, x, dither);
      benchmark::DoNotOptimize(x);
      benchmark::ClobberMemory();
    }
  });
  state.SetItemsProcessed(state.iterations() * kUpdateBlock);
}

WeightEncoding fp8(int64_t block, Fp8ScaleMode mode) {
  return {.format = WeightFormat::kBlockFp8, .fp8_block_size = block, .fp8_scale_mode = mode};
}
WeightEncoding nvfp4(Nvfp4ScaleMode mode) {
  return {.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = mode};
}

void add(const char* name, const WeightEncoding& encoding) {
  const auto one = [&](const char* what, Work work) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}", name, what).c_str(), run, encoding, work);
  };
  one("load", Work::kLoad);
  one("store_nearest", Work::kStoreNearest);
  one("store_stochastic", Work::kStoreStochastic);
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  using namespace mpt;
  add("block_fp8_128_pow2", fp8(128, Fp8ScaleMode::kPow2));
  add("block_fp8_128_fp16", fp8(128, Fp8ScaleMode::kFp16));
  add("block_fp8_16_pow2", fp8(16, Fp8ScaleMode::kPow2));
  add("nvfp4_sticky", nvfp4(Nvfp4ScaleMode::kSticky));
  add("nvfp4_live", nvfp4(Nvfp4ScaleMode::kLive));
  add("mxfp8", {.format = WeightFormat::kMxfp8});
  return run_benchmarks(argc, argv, 0.5);
}
