// The optimizers' operations, once, for any Exec.
#pragma once

#include <utility>

#include "core/check.h"
#include "device/exec.h"
#include "optim/apollo_e_on.h"
#include "optim/survival_unit.h"
#include "optim/update_ops.h"
#include "optim/update_unit.h"
#include "precision/codecs.h"
#include "precision/largest.h"

namespace mpt {

// Of a lane's part, in FP64: running sums that vectorise, then a tree.
template <int kPart>
MPT_HD double sum_of_part(const float (&x)[kPart]) {
  constexpr int kRunning = kPart < 32 ? kPart : 32;
  double running[kRunning] = {};
  for (int first = 0; first < kPart; first += kRunning) {
#pragma omp simd
    for (int j = 0; j < kRunning; ++j) running[j] += double(x[first + j]) * double(x[first + j]);
  }
  for (int width = kRunning / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) running[j] += running[j + width];
  return running[0];
}

// Sum of squares, in FP64, of a run of units.
template <class Codec>
struct SquareSum {
  static constexpr int64_t kUnitsPerPiece = 128;

  UnitGrid grid;
  Codec codec;
  double* partial;

  template <class G>
  MPT_HD void operator()(G group, int64_t piece) const {
    const int64_t end = min_of((piece + 1) * kUnitsPerPiece, grid.units());
    double total = 0.0;
    for (int64_t unit = piece * kUnitsPerPiece; unit < end; ++unit) total += of_unit(group, grid.span(unit));
    if (group.lane() == 0) partial[piece] = total;
  }

 private:
  template <class G>
  MPT_HD double of_unit(G group, UnitSpan span) const {
    constexpr int kPart = LanePart<G>::kSize;
    float x[kPart];
    codec.load(group, span, x);
    // Each lane sums its own part, and the group what they found.
    const double mine = sum_of_part(x);
    if constexpr (G::kLanes == 1)
      return mine;
    else
      return group.sum(G::kLanes, [mine](int64_t) { return mine; });
  }
};

struct CopyNumber {
  const float* source;
  float* target;

  MPT_HD void operator()(int64_t) const { *target = *source; }
};

template <Exec E>
class UpdateOpsOn : public UpdateOps {
 public:
  explicit UpdateOpsOn(E exec) : exec_(exec) {}

  void update(const UpdateCall& call) override {
    const bool compensated = call.residuals.rows > 0;
    if (compensated && call.per_op_adamw) return update_compensated(*call.per_op_adamw, call);
    std::visit(
        [&]<class Rule>(const Rule& rule) {
          if (compensated)
            update_compensated(KahanFused<Rule>{rule}, call);
          else
            with_codec(call.weights, [&](const auto& codec) { update_rounded(rule, codec, call); });
        },
        call.rule);
  }

  void project(const ProjectionCall& call) override {
    const UnitGrid grid{call.weights.rows, call.weights.cols};
    const ProjectionShape shape = projection_shape(grid.rows, grid.cols);
    const int64_t rank = call.projection.rows;
    check_shape(grid, call.gradient);
    check(call.projection.cols == shape.depth && call.second.rows == shape.channels &&
              call.second.cols == rank && call.projection.contiguous() && call.second.contiguous(),
          "projection [{},{}] and its moments [{},{}] of a [{},{}]", rank, call.projection.cols,
          call.second.rows, call.second.cols, grid.rows, grid.cols);
    const ProjectionScratch& scratch = call.scratch;
    float* const g = scratch.gradient.as<float>();
    with_codec(call.weights, [&]<class Codec>(const Codec& codec) {
      exec_.units(grid.units(),
                  ExponentGradientUnit<Codec>{grid, codec, ElementCodec(call.gradient), call.grad_scale, g});
    });
    if (shape.axis == ChannelAxis::kRows)
      exec_.rows(shape.channels, ProjectRow{g, call.projection.as<float>(), shape.depth, rank,
                                            scratch.projected.as<float>()});
    else
      project_columns(call, shape);
    find_factors(call, shape);
  }

  void sum_of_squares(const Tensor& tensor, const Tensor& partial) override {
    sum_squares({tensor.rows, tensor.cols}, ElementCodec(tensor), partial);
  }
  void sum_of_squares(const EncodedTensor& tensor, const Tensor& partial) override {
    with_codec(tensor, [&](const auto& codec) { sum_squares({tensor.rows, tensor.cols}, codec, partial); });
  }

  [[nodiscard]] int64_t survival_rows(int64_t rows, int64_t cols) const override {
    return survival_pieces({rows, cols}) * E::Group::kLanes;
  }

 private:
  template <class Codec>
  void sum_squares(const UnitGrid& grid, const Codec& codec, const Tensor& partial) {
    exec_.rows(square_sums(grid.rows, grid.cols), SquareSum<Codec>{grid, codec, partial.as<double>()});
  }

  template <class Rule, class Codec>
  void update_rounded(const Rule& rule, const Codec& codec, const UpdateCall& call) {
    auto states = unit_states<Rule>(call);
    Codec weights = codec;
    if constexpr (std::is_same_v<Codec, Nvfp4Codec>) {
      if (codec.mode == Nvfp4ScaleMode::kLive) weights = find_next_maximum(rule, codec, call);
    }
    if (call.survival.rows > 0)
      count(RoundedSurvival<Rule, Codec>{rule, states, weights, call.weight_dither}, call);
    exec_.units(states.grid.units(), UpdateUnit<Rule, Codec>{rule, states, weights, call.weight_dither});
    if constexpr (std::is_same_v<Codec, Nvfp4Codec>) {
      if (codec.mode == Nvfp4ScaleMode::kLive)
        exec_.elements(1, CopyNumber{call.maximum.tensor.as<float>(), call.weights.tensor_scale.as<float>()});
    }
  }

  // The codec that stores with the amax of the new weights.
  template <class Rule>
  Nvfp4Codec find_next_maximum(const Rule& rule, const Nvfp4Codec& codec, const UpdateCall& call) {
    const auto states = unit_states<Rule>(call);
    const int64_t units = states.grid.units();
    check(call.maximum.units.cols >= units, "scratch for the maxima of {} units, {} needed",
          call.maximum.units.cols, units);
    float* const maxima = call.maximum.units.as<float>();
    float* const total = call.maximum.tensor.as<float>();
    exec_.units(units, NextMaximumUnit<Rule, Nvfp4Codec>{rule, states, codec, maxima});
    exec_.rows(1, LargestOf{maxima, units, total});
    return codec.storing_with(total);
  }

  template <class Step>
  void update_compensated(const Step& step, const UpdateCall& call) {
    const auto states = unit_states<Step>(call);
    const Tensor& w = call.weights.codes;
    check(w.dtype == DType::kBF16 && call.residuals.dtype == DType::kBF16,
          "compensated {} weights with {} residuals; both are bf16", name_of(w.dtype),
          name_of(call.residuals.dtype));
    check_shape(states.grid, call.residuals);
    if (call.survival.rows > 0)
      count(CompensatedSurvival<Step>{step, states, ElementCodec(w), ElementCodec(call.residuals)}, call);
    exec_.units(states.grid.units(),
                KahanUnit<Step>{step, states, ElementCodec(w), ElementCodec(call.residuals)});
  }

  template <class Unit>
  void count(const Unit& unit, const UpdateCall& call) {
    const UnitGrid& grid = unit.states.grid;
    check(call.survival.rows >= survival_rows(grid.rows, grid.cols) &&
              call.survival.cols == int64_t(sizeof(SurvivalCounters)) && call.survival.contiguous(),
          "survival of [{},{}] counted into {} rows of {} bytes", grid.rows, grid.cols, call.survival.rows,
          call.survival.cols);
    exec_.rows(survival_pieces(grid), SurvivalPiece<Unit>{unit, call.survival.as<SurvivalCounters>()});
  }
  static int64_t survival_pieces(const UnitGrid& grid) {
    return (grid.units() + kSurvivalUnitsPerPiece - 1) / kSurvivalUnitsPerPiece;
  }

  template <class Rule>
  static auto unit_states(const UpdateCall& call) {
    constexpr int kStates = int(Rule::kStates.size());
    const UnitGrid grid{call.weights.rows, call.weights.cols};
    check(call.states.size() == kStates && call.state_dithers.size() == kStates,
          "update with {} states and {} dithers, the rule has {}", call.states.size(),
          call.state_dithers.size(), kStates);
    check(Rule::kFactors == 0 || call.factors.values != nullptr || grid.units() == 0,
          "a rule with factors, and none given");
    check_shape(grid, call.gradient);
    UnitStates<kStates> states{.grid = grid,
                               .states = {},
                               .dithers = {},
                               .state_update = call.state_update,
                               .gradient = ElementCodec(call.gradient),
                               .grad_scale = call.grad_scale,
                               .factors = call.factors};
    for (size_t i = 0; i < size_t(kStates); ++i) {
      check_shape(grid, call.states[i]);
      states.states[i] = ElementCodec(call.states[i]);
      states.dithers[i] = call.state_dithers[i];
    }
    return states;
  }

  void project_columns(const ProjectionCall& call, const ProjectionShape& shape) {
    const ColumnPieces pieces(shape.depth);
    const int64_t rank = call.projection.rows;
    const UnitGrid grid{pieces.count(), shape.channels};
    const ProjectionScratch& scratch = call.scratch;
    float* const sums = scratch.pieces.as<float>();
    exec_.units(grid.units(), ProjectColumnPieces{scratch.gradient.as<float>(), call.projection.as<float>(),
                                                  pieces, grid, rank, sums});
    exec_.elements(rank * shape.channels, SumColumnPieces{sums, pieces.count(), rank, shape.channels,
                                                          scratch.projected.as<float>()});
  }

  void find_factors(const ProjectionCall& call, const ProjectionShape& shape) {
    const ProjectionScratch& scratch = call.scratch;
    double* const norms = scratch.norms.as<double>();
    float* const factors = scratch.factors.as<float>();
    const int64_t m = shape.channels;
    exec_.elements(m, ProjectedMoments{scratch.projected.as<float>(), call.scalars, call.projection.rows, m,
                                       call.second.as<float>(), norms});
    if (call.sharing == ApolloE::kMini)
      exec_.rows(1, MatrixFactor{norms, m, call.scalars.scale, factors});
    else
      exec_.elements(m, ChannelFactors{norms, m, call.scalars.scale, factors});
  }

  static void check_shape(const UnitGrid& grid, const Tensor& t) {
    check(t.rows == grid.rows && t.cols == grid.cols, "update of [{},{}] with a [{},{}]", grid.rows,
          grid.cols, t.rows, t.cols);
  }

  E exec_;
};

}  // namespace mpt
