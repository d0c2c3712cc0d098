// Memory of models in FP8: the plan equals the allocation, codes replace wider copies, and codes of
// weights are kept for as many layers as configured.
#include <gtest/gtest.h>

#include "model/fp8_model.h"

namespace mpt::test {
namespace {

struct MemoryCase {
  PrecisionConfig config;
  Fp8Layout layout;
  Keep keep = Keep::kForBackward;
  WeightCodes weight_codes = WeightCodes::kAllLayers;
  Recompute recompute = Recompute::kNone;
  BatchShape micro_batch = kBatch;
};

// The same constructors against any allocator.
MemoryUse use_of(const LlamaConfig& model, const MemoryCase& c, Device& device,
                 Allocator& allocator) {
  const WeightStore store(
      llama_parameters(model),
      {.storage = DType::kBF16,
       .gradient = DType::kBF16,
       .linears = linear_encoding(c.config),
       .linear_copies = LinearCopies::kNone,
       .gradients = c.keep == Keep::kForBackward ? Gradients::kAllocate : Gradients::kNone},
      device, allocator);
  const Llama llama(model,
                    {.micro_batch = c.micro_batch,
                     .storage = DType::kBF16,
                     .loss_chunk_rows = 16,
                     .recompute = c.recompute,
                     .keep = c.keep,
                     .fp8 = c.config,
                     .weight_codes = c.weight_codes},
                    store, device, allocator);
  return allocator.use();
}

MemoryUse planned_use(const LlamaConfig& model, const MemoryCase& c) {
  PlanningAllocator plan;
  return use_of(model, c, *make_cpu_device_with({.layout = c.layout}, 1), plan);
}

class LlamaFp8Plan : public testing::TestWithParam<Variant> {};

TEST_P(LlamaFp8Plan, IsWhatIsTaken) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock})
    for (const Keep keep : {Keep::kForBackward, Keep::kNothing})
      for (const WeightCodes codes : {WeightCodes::kAllLayers, WeightCodes::kOneLayer}) {
        const auto device = make_cpu_device_with({.layout = GetParam().layout}, 2);
        const MemoryCase c{GetParam().config, GetParam().layout, keep, codes, recompute};
        PlanningAllocator plan;
        const MemoryUse planned = use_of(kConfig, c, *device, plan),
                        taken = use_of(kConfig, c, *device, *device->make_allocator());
        EXPECT_EQ(planned.total(), taken.total());
        for (const auto& [purpose, bytes] : planned.entries())
          EXPECT_EQ(bytes, taken.of(purpose)) << purpose.name;
      }
}

INSTANTIATE_TEST_SUITE_P(All, LlamaFp8Plan, testing::ValuesIn(variants_in_both_layouts()),
                         variant_name);

// A layer keeps four operands: BF16 takes 2 bytes of each, FP8 one. The attention's is no extra
// tensor in BF16, and one of codes in FP8.
TEST(LlamaFp8Memory, KeptActivationsShrink) {
  LlamaConfig config = kConfig;
  const auto activations = [&](const std::optional<PrecisionConfig>& fp8, int64_t layers) {
    config.num_hidden_layers = layers;
    PlanningAllocator plan;
    plan_activations(config, {.shape = {8, 64}, .storage = DType::kBF16, .fp8 = fp8}, plan);
    return plan.use().total();
  };
  const int64_t n = 8 * 64, c = 32, f = 32;
  const int64_t bf16_layer = activations(std::nullopt, 5) - activations(std::nullopt, 4),
                fp8_layer = activations(fp8_config(), 5) - activations(fp8_config(), 4);
  EXPECT_EQ(bf16_layer - fp8_layer, n * (c + c + f) - n * c);
}

// Inputs that are cast are not written in a wider type first: in addition to the tensors that all
// layers keep, there are their sum, a block half's output and the head's input with its norm.
TEST(LlamaFp8Memory, NothingIsStoredToBeCast) {
  LlamaConfig config = kConfig;
  for (const Format source : {Format::kBF16, Format::kF32})
    for (const bool head : {false, true}) {
      PrecisionConfig precision = fp8_config();
      precision.fp8_cast_source = source;
      precision.fp8_lm_head = head;
      const auto activations = [&](int64_t layers) {
        config.num_hidden_layers = layers;
        PlanningAllocator plan;
        plan_activations(config, {.shape = {8, 64}, .storage = DType::kBF16, .fp8 = precision},
                         plan);
        return plan.use().total();
      };
      const int64_t n = 8 * 64, c = 32, shared = activations(1) - (activations(2) - activations(1));
      EXPECT_EQ(shared, n * (2 * c + 2 * c + (head ? c : 2 * c) + 4));
    }
}

// A GPU's model keeps as much per layer, and allocates once for all of them the codes in the other
// layout: of the widest operand in rows, of the attention transposed, of the largest output
// gradient; and the weights' codes twice.
TEST(LlamaFp8Memory, RowsOfKCostCopies) {
  LlamaConfig config = kConfig;
  const auto more = [&](MemoryPurpose purpose, int64_t layers, Keep keep = Keep::kForBackward) {
    config.num_hidden_layers = layers;
    const auto use = [&](Fp8Layout layout) {
      return planned_use(
          config, {fp8_config(), layout, keep, WeightCodes::kAllLayers, Recompute::kNone, {8, 64}});
    };
    return use(Fp8Layout::kRowsOfK).of(purpose) - use(Fp8Layout::kAny).of(purpose);
  };
  const int64_t n = 8 * 64, c = 32, f = 32;
  EXPECT_EQ(more(kActivationMemory, 5), n * std::max(c, f));
  EXPECT_EQ(more(kActivationMemory, 6), n * std::max(c, f));
  EXPECT_EQ(more(kComputeWeightMemory, 5), 5 * (4 * c * c + 3 * c * f));
  EXPECT_EQ(more(kScratchMemory, 5), n * std::max(3 * c, 2 * f));
  EXPECT_EQ(more(kComputeWeightMemory, 5, Keep::kNothing), 0);
  EXPECT_EQ(more(kScratchMemory, 5, Keep::kNothing), 0);
}

// Codes of one layer, in all layouts that its GEMMs read, for any number of layers; plus the
// head's.
TEST(LlamaFp8Memory, CodesOfOneLayer) {
  LlamaConfig config = kConfig;
  const auto codes = [&](Fp8Layout layout, int64_t layers, Keep keep, bool head = false) {
    config.num_hidden_layers = layers;
    PrecisionConfig precision = fp8_config();
    precision.fp8_lm_head = head;
    return planned_use(config, {precision, layout, keep, WeightCodes::kOneLayer})
        .of(kComputeWeightMemory);
  };
  const int64_t c = 32, f = 32, layer = 4 * c * c + 3 * c * f, head = config.vocab_size * c;
  for (const int64_t layers : {1, 2, 5}) {
    EXPECT_EQ(codes(Fp8Layout::kAny, layers, Keep::kForBackward), layer);
    EXPECT_EQ(codes(Fp8Layout::kRowsOfK, layers, Keep::kForBackward), 2 * layer);
    EXPECT_EQ(codes(Fp8Layout::kRowsOfK, layers, Keep::kNothing), layer);
    EXPECT_EQ(codes(Fp8Layout::kRowsOfK, layers, Keep::kForBackward, true), 2 * (layer + head));
  }
}

// The 1B model on a GPU, in bytes per parameter. Linear layers are 0.902 of the parameters;
// embedding and head are stored in BF16. Weights take
//   BF16     2
//   FP8      0.902 (1 + 2 / 128) + 0.098 * 2  = 1.112
//   NVFP4    0.902 (1/2 + 1/16)  + 0.098 * 2  = 0.703
// and codes of a 24th of the linear layers in two layouts 0.902 * 2 / 24 = 0.075, where codes of
// all of them took 1.805. Padding of 5461 to 5472 adds up to 0.003.
TEST(LlamaFp8Memory, OneBillionParameters) {
  const LlamaConfig config{.hidden_size = 2048,
                           .intermediate_size = 5461,
                           .num_hidden_layers = 24,
                           .num_attention_heads = 32,
                           .vocab_size = 32000};
  const auto parameters = double(total_elements(llama_parameters(config)));
  const auto read = [&](WeightFormat weights, WeightCodes codes) {
    const MemoryUse use =
        planned_use(config, {fp8_config(weights), Fp8Layout::kRowsOfK, Keep::kForBackward, codes});
    return double(use.of(kWeightMemory) + use.of(kComputeWeightMemory)) / parameters;
  };
  const struct {
    WeightFormat weights;
    double stored;
  } cases[] = {{WeightFormat::kBF16, 2},
               {WeightFormat::kBlockFp8, 0.902 * (1 + 2.0 / 128) + 0.098 * 2},
               {WeightFormat::kNvfp4, 0.902 * (0.5 + 1.0 / 16) + 0.098 * 2}};
  for (const auto& c : cases) {
    EXPECT_NEAR(read(c.weights, WeightCodes::kOneLayer), c.stored + 0.902 * 2 / 24, 0.004);
    EXPECT_NEAR(read(c.weights, WeightCodes::kAllLayers), c.stored + 0.902 * 2, 0.008);
  }
  EXPECT_LE(read(WeightFormat::kBlockFp8, WeightCodes::kOneLayer), 1.3);
  EXPECT_LE(read(WeightFormat::kNvfp4, WeightCodes::kOneLayer), 0.9);
}

TEST(LlamaFp8Memory, UnalignedShapesAreRefused) {
  const auto refused = [&](const LlamaConfig& config, const BenchOptions& options) {
    EXPECT_THROW(ModelBench(config, options), LogicError);
  };
  LlamaConfig narrow = kConfig, unpadded = kConfig, odd_vocab = kConfig;
  narrow.hidden_size = 24;
  unpadded.pad_multiple = 1;
  odd_vocab.vocab_size = 49;
  refused(narrow, options_of(fp8_config()));
  refused(unpadded, options_of(fp8_config()));
  BenchOptions short_rows = options_of(fp8_config());
  short_rows.micro_batch.seq_len = 24;
  refused(kConfig, short_rows);
  EXPECT_NO_THROW(ModelBench(odd_vocab, options_of(fp8_config())));
  PrecisionConfig head = fp8_config();
  head.fp8_lm_head = true;
  refused(odd_vocab, options_of(head));
  BenchOptions odd_chunks = options_of(head);
  odd_chunks.loss_chunk_rows = 10;
  refused(kConfig, odd_chunks);
}

}  // namespace
}  // namespace mpt::test
