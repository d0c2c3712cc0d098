// The optimizers' operations, once, for any Exec.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/check.h"
#include "device/exec.h"
#include "optim/apollo_e_on.h"
#include "optim/unit_passes.h"
#include "optim/update_ops.h"
#include "optim/update_table.h"
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

// The norm of all gradients, and what the step does about it.
struct JudgeStep {
  const double* partial;
  int64_t pieces;
  const double* losses;
  int64_t loss_count;
  double clip_grad_norm;
  StepControl* control;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const double *const squares = partial, *const loss = losses;
    const double norm = std::sqrt(group.sum(pieces, [=](int64_t i) { return squares[i]; }));
    const double nan_or_0 = group.sum(loss_count, [=](int64_t i) { return loss[i] - loss[i]; });
    if (group.lane() != 0) return;
    *control = {.grad_norm = norm,
                .grad_scale = clip_scale(clip_grad_norm, norm),
                .proceed = nan_or_0 + (norm - norm) == 0.0};
  }
};

struct TakeMaximum {
  const float* maximum;
  const StepControl* control;
  float* scale;

  MPT_HD void operator()(int64_t) const {
    if (control->proceed != 0) *scale = *maximum;
  }
};

template <Exec E>
class UpdateOpsOn : public UpdateOps {
 public:
  explicit UpdateOpsOn(E exec) : exec_(exec) {}

  [[nodiscard]] int64_t table_bytes(std::span<const UpdateCall> tensors) const override {
    int64_t bytes = 0;
    for (const Batch& batch : batches_of(tensors)) bytes += batch.bytes;
    return bytes;
  }

  void write_table(const UpdatesCall& call, std::byte* image) const override {
    for (const Batch& batch : batches_of(call.tensors))
      with_type(call.tensors[batch.members.front()], [&]<class Unit>(std::type_identity<Unit>) {
        write_functors<Unit>(batch.members, image + batch.offset, [&](size_t i, const auto& write) {
          with_unit(call, i, write);
          return units_of(call.tensors[i]);
        });
      });
  }

  void update(const UpdatesCall& call) override {
    if (call.survival.rows > 0)
      check(call.tensors.size() == 1, "a survey of {} tensors", call.tensors.size());
    for (const Batch& batch : batches_of(call.tensors))
      with_type(call.tensors[batch.members.front()], [&]<class Unit>(std::type_identity<Unit>) {
        update_batch(call, batch,
                     TensorTable<Unit>(call.table + batch.offset, int64_t(batch.members.size())));
      });
  }

  [[nodiscard]] int64_t norm_table_bytes(std::span<const Tensor> gradients) const override {
    return TensorTable<SquareSum<ElementCodec>>::bytes(int64_t(gradients.size()));
  }

  void write_norm_table(const NormCall& call, std::byte* image) const override {
    double* partial = call.partial.as<double>();
    std::vector<size_t> all(call.gradients.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    write_functors<SquareSum<ElementCodec>>(all, image, [&](size_t i, const auto& write) {
      const Tensor& g = call.gradients[i];
      write(SquareSum<ElementCodec>{{g.rows, g.cols}, ElementCodec(g), partial});
      partial += square_sums(g.rows, g.cols);
      return square_sums(g.rows, g.cols);
    });
  }

  void measure(const NormCall& call) override {
    using Sum = SquareSum<ElementCodec>;
    int64_t pieces = 0;
    for (const Tensor& g : call.gradients) pieces += square_sums(g.rows, g.cols);
    check(call.partial.cols >= pieces, "room for {} sums of squares, {} needed", call.partial.cols, pieces);
    exec_.rows(pieces, ForEachTensor<Sum>{{call.table, int64_t(call.gradients.size())}, nullptr});
    exec_.rows(1, JudgeStep{call.partial.as<double>(), pieces, call.losses.as<double>(),
                            call.losses.elements(), call.clip_grad_norm, call.control});
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
                  ExponentGradientUnit<Codec>{grid, codec, ElementCodec(call.gradient), call.control, g});
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

  static int64_t units_of(const UpdateCall& call) {
    return mpt::units_of(call.weights.rows, call.weights.cols);
  }

  // Tensors whose updates are one pass: those of one type of unit, or a single one that takes several passes
  // and shares scratch with others.
  struct Batch {
    std::array<size_t, 4> kind;
    std::vector<size_t> members;
    int64_t offset = 0, bytes = 0;  // of its table
  };

  // Compensated weights of one step, or those of a rule rounded with a codec.
  static std::array<size_t, 4> kind_of(const UpdateCall& call) {
    const bool compensated = call.residuals.rows > 0;
    return {
        size_t(compensated), size_t(call.per_op_adamw.has_value()), call.rule.index(),
        size_t(is_scaled(call.weights.encoding.format) ? call.weights.encoding.format : WeightFormat::kF32)};
  }

  static std::vector<Batch> batches_of(std::span<const UpdateCall> tensors) {
    std::vector<Batch> batches;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto kind = kind_of(tensors[i]);
      const auto same = [&](const Batch& b) {
        return b.kind == kind && !needs_next_maximum(tensors[b.members.front()].weights);
      };
      const auto found =
          needs_next_maximum(tensors[i].weights) ? batches.end() : std::ranges::find_if(batches, same);
      if (found != batches.end())
        found->members.push_back(i);
      else
        batches.push_back({.kind = kind, .members = {i}});
    }
    int64_t offset = 0;
    for (Batch& batch : batches) {
      with_type(tensors[batch.members.front()], [&]<class Unit>(std::type_identity<Unit>) {
        batch.bytes = TensorTable<Unit>::bytes(int64_t(batch.members.size()));
      });
      batch.offset = offset;
      offset += batch.bytes;
    }
    return batches;
  }

  template <class F>
  static void with_type(const UpdateCall& call, const F& f) {
    const bool compensated = call.residuals.rows > 0;
    if (compensated && call.per_op_adamw) return f(std::type_identity<KahanUnit<KahanPerOpAdamW>>{});
    std::visit(
        [&]<class Rule>(const Rule&) {
          if (compensated) return f(std::type_identity<KahanUnit<KahanFused<Rule>>>{});
          with_codec(call.weights,
                     [&]<class Codec>(const Codec&) { f(std::type_identity<UpdateUnit<Rule, Codec>>{}); });
        },
        call.rule);
  }

  // f(unit) with the functor that makes the tensor's update.
  template <class F>
  static void with_unit(const UpdatesCall& call, size_t index, const F& f) {
    const UpdateCall& tensor = call.tensors[index];
    if (tensor.residuals.rows > 0) return with_compensated_unit(call, tensor, f);
    std::visit(
        [&]<class Rule>(const Rule& rule) {
          with_codec(tensor.weights, [&]<class Codec>(const Codec& codec) {
            Codec weights = codec;
            if constexpr (std::is_same_v<Codec, Nvfp4Codec>)
              if (needs_next_maximum(tensor.weights))
                weights = codec.storing_with(tensor.maximum.tensor.template as<float>());
            f(UpdateUnit<Rule, Codec>{rule, unit_states<Rule>(call, tensor), weights, tensor.weight_dither});
          });
        },
        tensor.rule);
  }

  template <class F>
  static void with_compensated_unit(const UpdatesCall& call, const UpdateCall& tensor, const F& f) {
    const Tensor& w = tensor.weights.codes;
    check(w.dtype == DType::kBF16 && tensor.residuals.dtype == DType::kBF16,
          "compensated {} weights with {} residuals; both are bf16", name_of(w.dtype),
          name_of(tensor.residuals.dtype));
    check_shape({w.rows, w.cols}, tensor.residuals);
    const auto make = [&]<class Step>(const Step& step) {
      f(KahanUnit<Step>{step, unit_states<Step>(call, tensor), ElementCodec(w),
                        ElementCodec(tensor.residuals)});
    };
    if (tensor.per_op_adamw) return make(*tensor.per_op_adamw);
    std::visit([&]<class Rule>(const Rule& rule) { make(KahanFused<Rule>{rule}); }, tensor.rule);
  }

  // items(i, write) writes the functor of tensor i and returns how many items it has.
  template <class Functor, class Items>
  static void write_functors(const std::vector<size_t>& members, std::byte* image, const Items& items) {
    using Table = TensorTable<Functor>;
    int64_t first = 0;
    for (size_t k = 0; k < members.size(); ++k) {
      memcpy(image + Table::first_offset(int64_t(members.size())) + 8 * k, &first, sizeof first);
      first += items(members[k], [&](const auto& functor) {
        check(sizeof functor == sizeof(Functor), "a functor of {} bytes in a table of {}", sizeof functor,
              sizeof(Functor));
        memcpy(image + k * sizeof(Functor), &functor, sizeof functor);
      });
    }
  }

  template <class Unit>
  void update_batch(const UpdatesCall& call, const Batch& batch, const TensorTable<Unit>& table) {
    const UpdateCall& first = call.tensors[batch.members.front()];
    const bool live = needs_next_maximum(first.weights);  // and alone
    if (live) find_next_maximum(first, table.functors);
    if (call.survival.rows > 0) survey(call);
    int64_t units = 0;
    for (const size_t i : batch.members) units += units_of(call.tensors[i]);
    UnitPasses<E, Unit>::update(exec_, units, {table, call.control});
    if (live)
      exec_.elements(1, TakeMaximum{first.maximum.tensor.as<float>(), call.control,
                                    first.weights.tensor_scale.as<float>()});
  }

  // The amax of the tensor's new weights, which it is stored with.
  template <class Unit>
  void find_next_maximum(const UpdateCall& call, const Unit* tensor) {
    const int64_t units = units_of(call);
    check(call.maximum.units.cols >= units, "scratch for the maxima of {} units, {} needed",
          call.maximum.units.cols, units);
    float* const maxima = call.maximum.units.as<float>();
    UnitPasses<E, Unit>::find_maxima(exec_, units, {tensor, maxima});
    exec_.rows(1, LargestOf{maxima, units, call.maximum.tensor.as<float>()});
  }

  // Counts what the only tensor's update will do, before it does.
  void survey(const UpdatesCall& call) {
    const UnitGrid grid{call.tensors[0].weights.rows, call.tensors[0].weights.cols};
    const Tensor& table = call.survival;
    check(table.rows >= survival_rows(grid.rows, grid.cols) &&
              table.cols == int64_t(sizeof(SurvivalCounters)) && table.contiguous(),
          "survival of [{},{}] counted into {} rows of {} bytes", grid.rows, grid.cols, table.rows,
          table.cols);
    with_unit(call, 0, [&]<class Unit>(const Unit& unit) {
      UnitPasses<E, Unit>::survey(exec_, survival_pieces(grid), unit, table.as<SurvivalCounters>());
    });
  }
  static int64_t survival_pieces(const UnitGrid& grid) {
    return (grid.units() + kSurvivalUnitsPerPiece - 1) / kSurvivalUnitsPerPiece;
  }

  template <class Rule>
  static auto unit_states(const UpdatesCall& updates, const UpdateCall& call) {
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
                               .control = updates.control,
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
    exec_.elements(m, ProjectedMoments{scratch.projected.as<float>(), call.scalars, call.control,
                                       call.projection.rows, m, call.second.as<float>(), norms});
    if (call.sharing == ApolloE::kMini)
      exec_.rows(1, MatrixFactor{norms, m, call.scalars, factors});
    else
      exec_.elements(m, ChannelFactors{norms, m, call.scalars, factors});
  }

  static void check_shape(const UnitGrid& grid, const Tensor& t) {
    check(t.rows == grid.rows && t.cols == grid.cols, "update of [{},{}] with a [{},{}]", grid.rows,
          grid.cols, t.rows, t.cols);
  }

  E exec_;
};

}  // namespace mpt
