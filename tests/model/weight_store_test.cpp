// Weights in memory: adjacent tensors, bit-exact initial values, padding that stays +0.
#include "model/weight_store.h"

#include <fstream>

#include <gtest/gtest.h>

#include "core/normal.h"
#include "core/random.h"
#include "model/model_bench.h"
#include "model/random_model.h"

namespace mpt::test {
namespace {

const LlamaConfig kStored{.hidden_size = 12,
                          .intermediate_size = 21,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 2,
                          .vocab_size = 31};

struct Store {
  std::unique_ptr<Device> device;
  std::unique_ptr<Allocator> allocator;
  WeightStore weights;

  Store(const LlamaConfig& config, DType storage, int threads = 1)
      : device(make_cpu_device(threads)),
        allocator(device->make_allocator()),
        weights(llama_parameters(config), {.storage = storage, .gradient = storage}, *device,
                *allocator) {}

  void initialize(const LlamaConfig& config, uint64_t seed) {
    initialize_weights(weights, config.initializer_range, seed, *device);
  }
  NamedValues values() {
    NamedValues all;
    for (const NamedTensor& named : weights.named_tensors())
      all[named.name] = values_of(*device, named.tensor);
    return all;
  }
};

NamedValues initial_weights(const LlamaConfig& config, uint64_t seed, DType storage = DType::kF32,
                            int threads = 1) {
  Store store(config, storage, threads);
  store.initialize(config, seed);
  return store.values();
}

// --- layout --------------------------------------------------------------------------------------

void expect_together(const WeightStore& weights, int64_t first, int64_t count, int64_t rows_each) {
  for (const bool gradients : {false, true}) {
    const Tensor whole = gradients ? weights.gradient_fused(first) : weights.compute_fused(first);
    EXPECT_EQ(whole.rows, count * rows_each);
    EXPECT_TRUE(whole.contiguous());
    for (int64_t j = 0; j < count; ++j) {
      const Tensor& part = gradients ? weights.gradient(first + j) : weights.compute(first + j);
      EXPECT_EQ(part.rows, rows_each);
      EXPECT_EQ(part.data, whole.row_range(j * rows_each, rows_each).data) << "part " << j;
    }
  }
}

TEST(WeightStore, FusedNeighboursLieTogether) {
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    const Store store(kStored, storage);
    for (const int64_t layer : {0, 1}) {
      expect_together(store.weights, layer_index(kStored, layer, LayerParam::kQ), 3, 12);
      expect_together(store.weights, layer_index(kStored, layer, LayerParam::kGate), 2, 32);
      EXPECT_EQ(store.weights.compute_fused(layer_index(kStored, layer, LayerParam::kDown)).rows,
                12);
      EXPECT_EQ(store.weights.compute_fused(layer_index(kStored, layer, LayerParam::kDown)).cols,
                32);
    }
  }
}

TEST(WeightStore, NoTwoParametersOverlap) {
  const Store store(kStored, DType::kBF16);
  std::map<const std::byte*, const std::byte*> ranges;
  for (int64_t i = 0; i < int64_t(store.weights.specs().size()); ++i)
    for (const Tensor& t : {store.weights.compute(i), store.weights.gradient(i)}) {
      EXPECT_EQ(t.rows, store.weights.specs()[size_t(i)].physical_rows);
      EXPECT_EQ(t.cols, store.weights.specs()[size_t(i)].physical_cols);
      ranges[t.data] = t.data + t.bytes();
    }
  ASSERT_EQ(ranges.size(), 2 * store.weights.specs().size());
  for (auto it = ranges.begin(); std::next(it) != ranges.end(); ++it)
    EXPECT_LE(it->second, std::next(it)->first);
}

// --- initial values ------------------------------------------------------------------------------

std::vector<uint32_t> hexadecimal(const nlohmann::json& words) {
  std::vector<uint32_t> values;
  for (const auto& word : words)
    values.push_back(uint32_t(std::stoul(word.get<std::string>(), nullptr, 16)));
  return values;
}

TEST(InitialWeights, GoldenValues) {
  std::ifstream file(MPT_SOURCE_DIR "/tests/golden/numerics_golden.json");
  const auto golden = nlohmann::json::parse(file).at("init");
  const uint64_t seed = golden.at("seed");
  const std::vector<uint32_t> words = hexadecimal(golden.at("words")),
                              bits = hexadecimal(golden.at("values"));
  for (uint32_t c = 0; c < words.size(); ++c)
    EXPECT_EQ((RandomCounter{seed, 0, 0, 0, kInitStream}.word(c)), words[c]);
  LlamaConfig config = kStored;
  config.initializer_range = golden.at("std");
  const auto weights = initial_weights(config, seed);
  const std::vector<float>& embedding = weights.at("model.embed_tokens.weight");
  ASSERT_EQ(bits.size(), 8u);
  EXPECT_EQ(bits[0], 0xbc9ef4b6u);
  for (size_t c = 0; c < bits.size(); ++c) EXPECT_EQ(bits_of(embedding[c]), bits[c]) << c;
}

// Returns any element, only from its coordinates.
float drawn(const RandomCounter& counter, uint32_t column, double std_dev) {
  return float(std_dev * normals_of(counter.block(column / 4))[column % 4]);
}

TEST(InitialWeights, EveryElementIsAFunctionOfItsLogicalCoordinates) {
  const auto weights = initial_weights(kStored, 7);
  for (const ParamSpec& spec : llama_parameters(kStored)) {
    const std::vector<float>& values = weights.at(spec.name);
    for (int64_t r = 0; r < spec.rows; ++r)
      for (int64_t c = 0; c < spec.cols; ++c) {
        const RandomCounter counter{7, spec.tensor_id, uint32_t(r), 0, kInitStream};
        const float want = spec.kind == ParamKind::kNorm ? 1.0f : drawn(counter, uint32_t(c), 0.02);
        ASSERT_EQ(values[size_t(r * spec.cols + c)], want) << spec.name << " " << r << " " << c;
      }
  }
}

TEST(InitialWeights, IndependentOfThreadsAndPadding) {
  const auto weights = initial_weights(kStored, 42);
  EXPECT_EQ(initial_weights(kStored, 42, DType::kF32, 2), weights);
  EXPECT_EQ(initial_weights(kStored, 42, DType::kF32, 3), weights);
  LlamaConfig unpadded = kStored;
  unpadded.pad_multiple = 1;
  EXPECT_EQ(initial_weights(unpadded, 42), weights);
  EXPECT_NE(initial_weights(kStored, 43), weights);
}

TEST(InitialWeights, Bf16IsTheRoundedFp32Draw) {
  NamedValues want = initial_weights(kStored, 42);
  for (auto& [name, values] : want)
    for (float& x : values) x = rounded_to<bf16>(x);
  EXPECT_EQ(initial_weights(kStored, 42, DType::kBF16), want);
}

// A table larger than the amount drawn at a time: no seam where the pieces meet.
TEST(InitialWeights, LargeTables) {
  LlamaConfig config = kStored;
  config.hidden_size = 64, config.num_hidden_layers = 1, config.vocab_size = 66000;
  const auto weights = initial_weights(config, 5);
  const std::vector<float>& head = weights.at("lm_head.weight");
  for (const int64_t row : {0, 65535, 65536, 65999})
    for (const uint32_t c : {0u, 63u}) {
      const RandomCounter counter{5, uint32_t(head_index(config)), uint32_t(row), 0, kInitStream};
      EXPECT_EQ(head[size_t(row * 64 + c)], drawn(counter, c, 0.02)) << row;
    }
}

TEST(InitialWeights, RangeZeroGivesZeros) {
  LlamaConfig config = kStored;
  config.initializer_range = 0;
  const auto weights = initial_weights(config, 1);
  for (const float x : weights.at("lm_head.weight")) EXPECT_EQ(x, 0);
  for (const float x : weights.at("model.norm.weight")) EXPECT_EQ(x, 1);
}

// --- padding -------------------------------------------------------------------------------------

// Every bit beyond the logical shape is 0.
void expect_padding_zero(const ParamSpec& spec, const Tensor& tensor, const char* what) {
  const int64_t size = size_of(tensor.dtype);
  for (int64_t r = 0; r < tensor.rows; ++r)
    for (int64_t c = 0; c < tensor.cols; ++c) {
      if (r < spec.rows && c < spec.cols) continue;
      const std::byte* element = tensor.data + (r * tensor.stride + c) * size;
      for (int64_t b = 0; b < size; ++b)
        ASSERT_EQ(element[b], std::byte{0}) << what << " of " << spec.name;
    }
}

struct Formats {
  DType storage, gradient;
  int64_t additions;
};

TEST(Padding, StaysPositiveZero) {
  for (const auto& [storage, gradient, additions] :
       {Formats{DType::kF32, DType::kF32, 1}, Formats{DType::kF32, DType::kF32, 2},
        Formats{DType::kBF16, DType::kBF16, 1}, Formats{DType::kBF16, DType::kBF16, 2}}) {
    const GoldenModel model = random_model(kStored, {2, 5}, {.ignored = 0.2});
    ModelBench bench(kStored, {.micro_batch = {2 / additions, 5},
                               .storage = storage,
                               .gradient = gradient,
                               .additions = additions,
                               .loss_chunk_rows = 3});
    initialize_weights(bench.store(), 1.0, 42, bench.device());
    bench.step(model, 2 / additions);
    int64_t padded = 0;
    for (int64_t i = 0; i < int64_t(bench.store().specs().size()); ++i) {
      const ParamSpec& spec = bench.store().specs()[size_t(i)];
      padded += spec.physical_elements() - spec.elements();
      expect_padding_zero(spec, bench.store().compute(i), "padding");
      expect_padding_zero(spec, bench.store().gradient(i), "gradient of the padding");
    }
    EXPECT_EQ(padded, 2 * 3 * 11 * 12);
  }
}

}  // namespace
}  // namespace mpt::test
