// An optimizer cut over ranks gives the bits of one that is not: weights on every rank, states put
// together, for every combination and number of ranks; and its states move from one number of ranks
// to another.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/combinations.h"
#include "support/draws.h"
#include "support/forwarding_transport.h"
#include "support/thread_ranks.h"

namespace mpt {
namespace {

using test::Combination;
using test::Draws;
using test::FlatConfig;
using test::OptimizerRun;
using test::RunSetup;
using test::shapes_to_cut;
using test::tensors_to_cut;
using test::tested_combinations;

// Returns the bits of consecutive elements as packed.
std::vector<uint32_t> bits_of_part(const TensorPart& part) {
  const Tensor& t = part.whole.tensor;
  std::vector<uint32_t> bits;
  for (int64_t i = part.first; i < part.first + part.count; ++i) {
    uint32_t element = 0;
    memcpy(&element, t.data + (i / t.cols * t.stride + i % t.cols) * size_of(t.dtype),
           size_t(size_of(t.dtype)));
    bits.push_back(element);
  }
  return bits;
}

// Elements of tensors by name, put together from parts; each may come once.
class Collected {
 public:
  void add(const TensorPart& part) {
    Collected one;
    std::vector<int64_t>& all = one.tensors_[part.whole.name];
    all.resize(size_t(part.whole.tensor.elements()), -1);
    std::ranges::copy(bits_of_part(part), all.begin() + part.first);
    add(one);
  }
  void add(const Collected& other) {
    for (const auto& [name, elements] : other.tensors_) {
      std::vector<int64_t>& all = tensors_[name];
      all.resize(elements.size(), -1);
      for (size_t i = 0; i < elements.size(); ++i) {
        if (elements[i] == -1) continue;
        if (all[i] != -1) throw LogicError(fmt::format("element {} of {} comes twice", i, name));
        all[i] = elements[i];
      }
    }
  }
  [[nodiscard]] bool complete() const {
    return std::ranges::all_of(tensors_,
                               [](const auto& t) { return !std::ranges::count(t.second, -1); });
  }
  // Writes the collected elements to a part of the same name.
  void put(const TensorPart& part) const {
    const Tensor& t = part.whole.tensor;
    const std::vector<int64_t>& all = tensors_.at(part.whole.name);
    for (int64_t i = part.first; i < part.first + part.count; ++i) {
      const auto element = uint32_t(all.at(size_t(i)));
      memcpy(t.data + (i / t.cols * t.stride + i % t.cols) * size_of(t.dtype), &element,
             size_t(size_of(t.dtype)));
    }
  }
  bool operator==(const Collected&) const = default;

 private:
  std::map<std::string, std::vector<int64_t>> tensors_;
};

Collected weights_of(const OptimizerRun& run) {
  Collected all;
  for (const UpdateTarget& target : run.targets())
    for (NamedTensor& piece : target.weights.pieces(target.name))
      all.add(whole_part(std::move(piece)));
  return all;
}

// One rank's optimizer with whole weights and gradients.
class Rank {
 public:
  Rank(const RunSetup& setup, Transport& transport)
      : partition_(tensors_to_cut(setup.config), transport.size()),
        ranks_(std::make_unique<test::ForwardingTransport>(transport), device_->make_comm_stream(),
               *device_) {
    run_.emplace(setup, shapes_to_cut(), make_cpu_device(1),
                 OptimizerRun::Share{partition_, ranks_});
  }

  OptimizerRun& run() { return *run_; }
  Optimizer& optimizer() { return run_->optimizer(); }
  [[nodiscard]] const Partition& partition() const { return partition_; }

  // Elements of a gradient that other ranks update are NaN here: nobody may read them.
  void fill_gradient(size_t i, const std::function<float(int64_t, int64_t)>& value) {
    const Tensor& g = run_->gradient(i);
    const BlockGrid grid{g.rows, g.cols};
    const BlockRange own = optimizer().blocks(i);
    run_->fill_gradient(i, [&](int64_t row, int64_t col) {
      const float x = value(row, col);
      const int64_t block = row * grid.per_row() + col / kUpdateBlock;
      const bool is_own = block >= own.first && block < own.end();
      return is_own ? x : std::numeric_limits<float>::quiet_NaN();
    });
  }

  // Gathers every rank's update blocks of the stored weights, then processes the whole weights.
  void gather_and_rescale() {
    for (size_t i = 0; i < run_->targets().size(); ++i) {
      const EncodedTensor& w = run_->targets()[i].weights;
      std::vector<std::vector<Tensor>> spans;
      for (int64_t r = 0; r < partition_.ranks(); ++r)
        spans.push_back(spans_of(w, partition_.range(r, int64_t(i))));
      for (size_t piece = 0; piece < spans[0].size(); ++piece) {
        std::vector<Tensor> parts;
        for (const std::vector<Tensor>& of_rank : spans) parts.push_back(of_rank[piece]);
        ranks_.all_gather(parts);
      }
    }
    optimizer().rescale();
  }

  [[nodiscard]] Collected weights() const { return weights_of(*run_); }
  [[nodiscard]] Collected states() {
    Collected all;
    for (const TensorPart& part : optimizer().parts_to_save()) all.add(part);
    return all;
  }

 private:
  Partition partition_;
  std::unique_ptr<Device> device_ = make_cpu_device(1);  // its second stream carries messages
  Communicator ranks_;
  std::optional<OptimizerRun> run_;
};

void start_sharded(OptimizerRun& run) {
  Draws draws(61);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-9, -3); });
  run.optimizer().weights_initialized();
}

// Gradient of step t, the same on every rank. Larger ones in the second step, so that it is clipped
// and others are not.
std::function<float(int64_t, int64_t)> gradient_of(int64_t t, size_t i) {
  const auto draws = std::make_shared<Draws>(100 * uint64_t(t) + i);
  return [=](int64_t, int64_t) { return draws->signed_binades(-12, t == 2 ? -4 : -9); };
}

struct Result {
  Collected weights, states;
  std::vector<double> norms;
  std::vector<float> scales;

  void note(const StepControl& control) {
    norms.push_back(control.grad_norm);
    scales.push_back(control.grad_scale);
  }
  bool operator==(const Result&) const = default;
};

RunSetup clipped(const Combination& c) {
  RunSetup setup = c.setup;
  setup.config.clip_grad_norm = 0.5;
  return setup;
}

constexpr int64_t kSteps = 3;

Result alone(const RunSetup& setup) {
  OptimizerRun run(setup, shapes_to_cut());
  Optimizer& optimizer = run.optimizer();
  start_sharded(run);
  Result result;
  for (int64_t t = 1; t <= kSteps; ++t) {
    for (size_t i = 0; i < run.targets().size(); ++i) run.fill_gradient(i, gradient_of(t, i));
    optimizer.prepare({.t = t});
    optimizer.measure_gradients({});
    optimizer.update();
    optimizer.rescale();
    result.note(optimizer.control());
  }
  result.weights = weights_of(run);
  for (NamedTensor& state : optimizer.named_states())
    result.states.add(whole_part(std::move(state)));
  return result;
}

void step(Rank& rank, int64_t t) {
  for (size_t i = 0; i < rank.run().targets().size(); ++i) rank.fill_gradient(i, gradient_of(t, i));
  rank.optimizer().prepare({.t = t});
  rank.optimizer().measure_gradients({});
  rank.optimizer().update();
  rank.gather_and_rescale();
}

// Returns each rank's final result.
std::vector<Result> together(const RunSetup& setup, int64_t ranks) {
  std::vector<Result> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Transport& transport) {
    Rank rank(setup, transport);
    start_sharded(rank.run());
    Result& result = results[size_t(transport.rank())];
    for (int64_t t = 1; t <= kSteps; ++t) {
      step(rank, t);
      result.note(rank.optimizer().control());
    }
    result.weights = rank.weights();
    result.states = rank.states();
  });
  return results;
}

void expect_bits_of_one(const RunSetup& setup, int64_t ranks) {
  SCOPED_TRACE(test::name_of_combination(setup));
  const Result expected = alone(setup);
  ASSERT_TRUE(expected.scales[0] == 1.0f && expected.scales[1] < 1.0f);
  Collected states;
  for (const Result& result : together(setup, ranks)) {
    ASSERT_EQ(result.norms, expected.norms);
    ASSERT_EQ(result.scales, expected.scales);
    ASSERT_TRUE(result.weights == expected.weights);
    states.add(result.states);
  }
  ASSERT_TRUE(states == expected.states);
}

void expect_bits_of_one(int64_t ranks) {
  for (const Combination& c : tested_combinations())
    ASSERT_NO_FATAL_FAILURE(expect_bits_of_one(clipped(c), ranks));
}

TEST(ShardedUpdate, TwoRanks) { expect_bits_of_one(2); }
TEST(ShardedUpdate, ThreeRanks) { expect_bits_of_one(3); }
TEST(ShardedUpdate, FourRanks) { expect_bits_of_one(4); }

// The shapes above are really cut, within a tensor too.
TEST(ShardedUpdate, SeveralRanksHaveUnitsOfOneTensor) {
  const Partition partition(tensors_to_cut({}), 3);
  for (const int64_t tensor : {1, 3}) {
    int64_t ranks = 0;
    for (int64_t rank = 0; rank < 3; ++rank) ranks += !partition.range(rank, tensor).empty();
    EXPECT_GE(ranks, 2) << tensor;
  }
}

const Combination& combination_named(std::string_view part) {
  const auto& all = test::every_combination();
  const auto found = std::ranges::find_if(
      all, [&](const Combination& c) { return c.name.find(part) != std::string::npos; });
  if (found == all.end()) throw LogicError(fmt::format("no combination {}", part));
  return *found;
}

// Returns one of every rule and format that keeps its own state.
std::vector<RunSetup> cover() {
  std::vector<RunSetup> setups;
  for (const std::string_view name : {"adamw decay scale apollo_e off, kahan, state bf16",
                                      "madam decay scale apollo_e off, stochastic",
                                      "m_plus_adam decay exponent apollo_e mini, nearest, state "
                                      "fp32 nearest once, weights nvfp4 128 pow2 live",
                                      "m_plus_adam decay scale apollo_e channel, stochastic, state "
                                      "bf16 nearest once, weights block_fp8",
                                      "m_plus_adam decay scale apollo_e off, nearest, state bf16 "
                                      "nearest once, weights nvfp4 128 pow2 sticky",
                                      "m_plus_adam decay scale apollo_e off, nearest, state bf16 "
                                      "nearest once, weights nvfp4 128 pow2 live, rates by block"})
    setups.push_back(clipped(combination_named(name)));
  return setups;
}

// A partition over one rank, and over more ranks than some tensors have pieces.
TEST(ShardedUpdate, OneRankAndMany) {
  for (const RunSetup& setup : cover())
    for (const int64_t ranks : {1, 7, 19})
      ASSERT_NO_FATAL_FAILURE(expect_bits_of_one(setup, ranks));
}

// A gradient that is not finite on one rank leaves everything on all ranks unchanged.
TEST(ShardedUpdate, OneRankWithoutFiniteGradientsStopsTheStepOfAll) {
  for (const RunSetup& setup : cover())
    for (const float bad : {INFINITY, std::numeric_limits<float>::quiet_NaN()})
      run_ranks(3, [&](Transport& transport) {
        Rank rank(setup, transport);
        start_sharded(rank.run());
        step(rank, 1);
        const Collected weights = rank.weights();
        const Collected states = rank.states();
        for (size_t i = 0; i < rank.run().targets().size(); ++i)
          rank.fill_gradient(i, gradient_of(2, i));
        const size_t last = rank.run().targets().size() - 1;
        if (!rank.optimizer().blocks(last).empty())
          rank.fill_gradient(last, [&](int64_t, int64_t) { return bad; });
        rank.optimizer().prepare({.t = 2});
        rank.optimizer().measure_gradients({});
        rank.optimizer().update();
        rank.gather_and_rescale();
        EXPECT_EQ(rank.optimizer().control().proceed, 0);
        EXPECT_TRUE(rank.weights() == weights);
        EXPECT_TRUE(rank.states() == states);
      });
}

// Saved by two ranks after two steps, loaded by three, and by one.
TEST(ShardedUpdate, StatesMoveToAnotherNumberOfRanks) {
  for (const RunSetup& setup : cover()) {
    std::vector<Collected> saved(2);
    Collected weights, states;
    run_ranks(2, [&](Transport& transport) {
      Rank rank(setup, transport);
      start_sharded(rank.run());
      for (int64_t t = 1; t < kSteps; ++t) step(rank, t);
      saved[size_t(transport.rank())] = rank.states();
      if (transport.rank() == 0) weights = rank.weights();
    });
    for (const Collected& part : saved) states.add(part);
    ASSERT_TRUE(states.complete());
    const Result expected = alone(setup);
    for (const int64_t ranks : {1, 3}) {
      Collected result;
      std::vector<Collected> of_rank(static_cast<size_t>(ranks));
      run_ranks(ranks, [&](Transport& transport) {
        Rank rank(setup, transport);
        for (const UpdateTarget& target : rank.run().targets())
          for (NamedTensor& piece : target.weights.pieces(target.name))
            weights.put(whole_part(piece));
        for (const TensorPart& part : rank.optimizer().parts_to_load()) states.put(part);
        rank.optimizer().states_loaded();
        step(rank, kSteps);
        EXPECT_TRUE(rank.weights() == expected.weights);
        of_rank[size_t(transport.rank())] = rank.states();
      });
      for (const Collected& part : of_rank) result.add(part);
      EXPECT_TRUE(result == expected.states) << ranks;
    }
  }
}

// All ranks' parts of the weights contain every element once, and those that a rank saves are its
// own.
TEST(ShardedUpdate, PartsOfEncodedWeightsAreAllOfThem) {
  for (const WeightEncoding& encoding : test::every_encoding())
    for (const int64_t ranks : {1, 2, 5}) {
      OptimizerRun run({.config = {}, .encoding = encoding}, shapes_to_cut());
      start_sharded(run);
      const Partition partition(tensors_to_cut({}), ranks);
      Collected whole, parts;
      for (size_t i = 0; i < run.targets().size(); ++i) {
        const UpdateTarget& target = run.targets()[i];
        for (NamedTensor& piece : target.weights.pieces(target.name))
          whole.add(whole_part(std::move(piece)));
        for (int64_t rank = 0; rank < ranks; ++rank)
          for (const TensorPart& part :
               parts_of(target.weights, target.name, partition.range(rank, int64_t(i))))
            parts.add(part);
      }
      EXPECT_TRUE(parts == whole) << name_of(encoding.format) << " " << ranks;
    }
}

// Sums of at most 7,000 terms in another order; |d e| adds up to sqrt(sum d^2 sum e^2) at most.
void expect_near(const UpdateSums& found, const UpdateSums& expected) {
  constexpr double kRelative = 7000 * 0x1p-53;
  const auto near = [](double a, double b, double most) { EXPECT_NEAR(a, b, kRelative * most); };
  near(found.weight_squares, expected.weight_squares, expected.weight_squares);
  for (int b = 0; b < kBranches; ++b)
    near(found.asked_squares[b], expected.asked_squares[b], expected.asked_squares[b]);
  const auto near_effect = [&](const EffectSums& a, const EffectSums& b) {
    near(a.squares, b.squares, b.squares);
    near(a.products, b.products, std::sqrt(b.squares * expected.asked_squares[0]));
  };
  near_effect(found.stored, expected.stored);
  near_effect(found.with_residuals, expected.with_residuals);
}

TEST(ShardedUpdate, StatisticsOfAllRanksAddUpToTheWhole) {
  for (RunSetup setup : cover()) {
    setup.options.statistics = StepStatistics::kOnDemand;
    OptimizerRun run(setup, shapes_to_cut());
    start_sharded(run);
    for (size_t i = 0; i < run.targets().size(); ++i) run.fill_gradient(i, gradient_of(1, i));
    const std::vector<UpdateStatistics> expected = run.optimizer().step_with_statistics({.t = 1});
    run.optimizer().rescale();
    run_ranks(3, [&](Transport& transport) {
      Rank rank(setup, transport);
      start_sharded(rank.run());
      for (size_t i = 0; i < rank.run().targets().size(); ++i)
        rank.fill_gradient(i, gradient_of(1, i));
      std::vector<UpdateStatistics> found = rank.optimizer().step_with_statistics({.t = 1});
      rank.gather_and_rescale();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].name, expected[i].name);
        EXPECT_EQ(found[i].branches, expected[i].branches);
        EXPECT_EQ(found[i].has_residuals, expected[i].has_residuals);
        EXPECT_EQ(found[i].weights, expected[i].weights);
        EXPECT_EQ(found[i].outcomes, expected[i].outcomes);
        EXPECT_EQ(found[i].dragged, expected[i].dragged);
        EXPECT_EQ(found[i].saturated_blocks, expected[i].saturated_blocks);
        // At most 7,000 terms, none beyond a fourth of a binade, in another order.
        EXPECT_NEAR(found[i].drag_log2, expected[i].drag_log2, 7000 * 7000 * 0.25 * 0x1p-53);
        expect_near(found[i].sums, expected[i].sums);
      }
      EXPECT_TRUE(rank.weights() == weights_of(run));
    });
  }
}

// A plan counts what the rank will allocate, and states are divided.
TEST(ShardedUpdate, APlanCountsTheStatesOfTheShard) {
  for (const RunSetup& setup : cover()) {
    OptimizerRun whole(setup, shapes_to_cut());
    const Partition partition(tensors_to_cut(setup.config), 3);
    const auto device = make_cpu_device(1);
    int64_t sum = 0;
    for (int64_t rank = 0; rank < 3; ++rank) {
      PlanningAllocator planned;
      Communicator ranks = Communicator::planned(rank, 3);
      const Optimizer optimizer(
          setup.config, setup.options, whole.targets(),
          {.partition = partition, .ranks = ranks, .device = *device, .allocator = planned});
      sum += optimizer.optimizer_state_bytes();
      EXPECT_LT(optimizer.optimizer_state_bytes(),
                whole.optimizer().optimizer_state_bytes() * 3 / 4);
      std::vector<MemoryUse> used(3);
      run_ranks(3, [&](Transport& transport) {
        const auto rank_device = make_cpu_device(1);
        Communicator reached(std::make_unique<test::ForwardingTransport>(transport),
                             rank_device->make_comm_stream(), *rank_device);
        const auto allocator = rank_device->make_allocator();
        const Optimizer made(setup.config, setup.options, whole.targets(),
                             {.partition = partition,
                              .ranks = reached,
                              .device = *rank_device,
                              .allocator = *allocator});
        used[size_t(transport.rank())] = allocator->use();
      });
      for (const auto purpose : {kOptimizerStateMemory, kScratchMemory})
        EXPECT_EQ(planned.use().of(purpose), used[size_t(rank)].of(purpose)) << purpose.name;
    }
    EXPECT_EQ(sum, whole.optimizer().optimizer_state_bytes());
  }
}

// Memory for projections is allocated where a projected matrix is updated: here by two ranks of
// four.
TEST(ShardedUpdate, ProjectionsTakeNoMemoryElsewhere) {
  const RunSetup setup = clipped(combination_named("apollo_e channel"));
  const OptimizerRun run(setup, shapes_to_cut());
  const Partition partition(tensors_to_cut(setup.config), 4);
  const auto device = make_cpu_device(1);
  int64_t ranks = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    PlanningAllocator planned;
    Communicator ranks_of_plan = Communicator::planned(rank, 4);
    const Optimizer optimizer(
        setup.config, setup.options, run.targets(),
        {.partition = partition, .ranks = ranks_of_plan, .device = *device, .allocator = planned});
    const bool projects = !optimizer.blocks(1).empty() || !optimizer.blocks(2).empty();
    ranks += projects;
    // The minimum for a projection: its gradient in fp32.
    EXPECT_EQ(planned.use().of(kScratchMemory) > 67 * 33 * 4, projects) << rank;
  }
  EXPECT_EQ(ranks, 2);
}

TEST(ShardedUpdate, RefusesWhatDoesNotFit) {
  const RunSetup setup = clipped(test::every_combination()[0]);
  const OptimizerRun run(setup, shapes_to_cut());
  const auto device = make_cpu_device(1);
  PlanningAllocator planned;
  const auto make = [&](const FlatConfig& config, const Partition& partition, Communicator& ranks) {
    const Optimizer optimizer(
        config, setup.options, run.targets(),
        {.partition = partition, .ranks = ranks, .device = *device, .allocator = planned});
  };
  Communicator of_two = Communicator::planned(1, 2), of_four = Communicator::planned(1, 4);
  const Partition two(tensors_to_cut(setup.config), 2);
  EXPECT_NO_THROW(make(setup.config, two, of_two));
  EXPECT_THROW(make(setup.config, two, Communicator::single()), LogicError) << "alone";
  EXPECT_THROW(make(setup.config, two, of_four), LogicError) << "more ranks than shares";
  std::vector<PartitionedTensor> few = tensors_to_cut(setup.config), other = few;
  few.pop_back();
  EXPECT_THROW(make(setup.config, Partition(few, 2), of_two), LogicError) << "fewer tensors";
  std::vector<PartitionedTensor> longer = tensors_to_cut(setup.config);
  longer[0].rows += 1;
  EXPECT_THROW(make(setup.config, Partition(longer, 2), of_two), LogicError) << "another shape";
  FlatConfig apollo_e = combination_named("apollo_e channel").setup.config;
  for (PartitionedTensor& tensor : other) tensor.cut = Cut::kBetweenTiles;
  EXPECT_NO_THROW(make(apollo_e, Partition(tensors_to_cut(apollo_e), 4), of_four));
  EXPECT_THROW(make(apollo_e, Partition(other, 4), of_four), LogicError) << "projected and cut";
}

}  // namespace
}  // namespace mpt
