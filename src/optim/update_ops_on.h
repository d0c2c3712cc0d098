// The optimizers' operations, once, for any Exec.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/check.h"
#include "device/exec.h"
#include "optim/apollo_e_on.h"
#include "optim/gradient_norm.h"
#include "optim/tensor_scales.h"
#include "optim/unit_passes.h"
#include "optim/update_ops.h"
#include "optim/update_table.h"
#include "optim/update_unit.h"
#include "precision/codecs.h"
#include "precision/largest.h"

namespace mpt {

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
          with_unit(call.tensors[i], call.control, write);
          return call.tensors[i].range();
        });
      });
  }

  void find_mean_scale(const EncodedTensor& weights, const Tensor& sums, const Tensor& mean) override {
    check(weights.encoding.format == WeightFormat::kNvfp4, "the mean block scale of {} weights",
          name_of(weights.encoding.format));
    check(sums.cols >= weights.rows, "scratch for the scales of {} rows, {} needed", sums.cols, weights.rows);
    const Tensor& scales = weights.block_scales;
    double* const of_row = sums.as<double>();
    exec_.rows(weights.rows, RowScaleSum{scales.as<uint8_t>(), scales.stride, weights.cols, of_row});
    exec_.rows(1, MeanScale{of_row, weights.rows, weights.elements(), mean.as<float>()});
  }

  void find_maxima(const UpdatesCall& call) override {
    each_batch(call, [&]<class Unit>(const Batch& batch, const TensorTable<Unit>& table) {
      for (size_t k = 0; k < batch.members.size(); ++k)
        find_maximum(call.tensors[batch.members[k]], table.functors + k, call.unit_maxima);
    });
  }

  void update(const UpdatesCall& call) override {
    each_batch(call, [&]<class Unit>(const Batch& batch, const TensorTable<Unit>& table) {
      int64_t units = 0;
      for (const size_t i : batch.members) units += call.tensors[i].range().count;
      UnitPasses<E, Unit>::update(exec_, units, {table, call.control});
    });
  }

  void clear_maxima(const Tensor& maxima) override {
    exec_.elements(maxima.cols, ClearMaximum{maxima.as<float>()});
  }

  void take_maximum(const EncodedTensor& weights, const Tensor& next_maximum,
                    const StepControl* control) override {
    exec_.elements(1, TakeMaximum{next_maximum.as<float>(), control, weights.tensor_scale.as<float>()});
  }

  void survey(const UpdateCall& call, const StepControl* control, const Tensor& counters) override {
    const UnitRange range = call.range();
    check(counters.rows >= survival_rows(range.count) && counters.cols == int64_t(sizeof(SurvivalCounters)) &&
              counters.contiguous(),
          "survival of {} units counted into {} rows of {} bytes", range.count, counters.rows, counters.cols);
    with_unit(call, control, [&]<class Unit>(const Unit& unit) {
      UnitPasses<E, Unit>::survey(exec_, range, unit, counters.as<SurvivalCounters>());
    });
  }

  [[nodiscard]] int64_t norm_table_bytes(const NormCall& call) const override {
    return TensorTable<Sum>::bytes(int64_t(own_gradients(call).size())) +
           int64_t(call.pieces.runs().size() * sizeof(PieceRun));
  }

  // Behind the tensors' functors lie the runs of pieces.
  void write_norm_table(const NormCall& call, std::byte* image) const override {
    const std::vector<size_t> own = own_gradients(call);
    write_functors<Sum>(own, image, [&](size_t i, const auto& write) {
      const Tensor& g = call.gradients[i];
      const OwnPieces& pieces = call.pieces.own(i);
      check(pieces.first + pieces.count <= square_sums(g.rows, g.cols), "pieces {}+{} of a gradient [{},{}]",
            pieces.first, pieces.count, g.rows, g.cols);
      write(Sum{{g.rows, g.cols}, ElementCodec(g), call.partial.as<double>(), pieces.shift});
      return UnitRange{pieces.first, pieces.count};
    });
    const std::vector<PieceRun>& runs = call.pieces.runs();
    if (!runs.empty())
      memcpy(image + TensorTable<Sum>::bytes(int64_t(own.size())), runs.data(),
             runs.size() * sizeof(PieceRun));
  }

  void sum_gradients(const NormCall& call) override {
    check_partial(call);
    const auto own = int64_t(own_gradients(call).size());
    exec_.rows(call.pieces.own_pieces(), ForEachTensor<Sum>{{call.table, own}, nullptr});
  }

  void judge(const NormCall& call) override {
    check_partial(call);
    const int64_t pieces = call.pieces.pieces(), sums = sums_of_pieces(pieces);
    check(call.sums.cols >= sums, "room for {} sums of pieces, {} needed", call.sums.cols, sums);
    const std::byte* const runs = call.table + TensorTable<Sum>::bytes(int64_t(own_gradients(call).size()));
    exec_.rows(sums, SumOfPieces{call.partial.as<double>(), pieces, reinterpret_cast<const PieceRun*>(runs),
                                 int64_t(call.pieces.runs().size()), call.sums.as<double>()});
    exec_.rows(1, JudgeStep{call.sums.as<double>(), sums, call.losses.as<double>(), call.losses.elements(),
                            call.clip_grad_norm, call.control});
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

  [[nodiscard]] int64_t survival_rows(int64_t units) const override {
    return survival_pieces(units) * E::Group::kLanes;
  }

 private:
  template <class Codec>
  void sum_squares(const UnitGrid& grid, const Codec& codec, const Tensor& partial) {
    exec_.rows(square_sums(grid.rows, grid.cols), SquareSum<Codec>{grid, codec, partial.as<double>(), 0});
  }

  using Sum = SquareSum<ElementCodec>;

  // Gradients of which this rank has units.
  static std::vector<size_t> own_gradients(const NormCall& call) {
    std::vector<size_t> own;
    for (size_t i = 0; i < call.gradients.size(); ++i)
      if (call.pieces.own(i).count > 0) own.push_back(i);
    return own;
  }
  static void check_partial(const NormCall& call) {
    check(call.partial.cols >= call.pieces.pieces(), "room for {} sums of squares, {} needed",
          call.partial.cols, call.pieces.pieces());
  }

  // Tensors whose updates are one pass: those of one type of unit.
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
      const auto found = std::ranges::find(batches, kind, &Batch::kind);
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

  // f(batch, its table in device memory) for every batch.
  template <class F>
  static void each_batch(const UpdatesCall& call, const F& f) {
    for (const Batch& batch : batches_of(call.tensors))
      with_type(call.tensors[batch.members.front()], [&]<class Unit>(std::type_identity<Unit>) {
        f(batch, TensorTable<Unit>(call.table + batch.offset, int64_t(batch.members.size())));
      });
  }

  // f(unit) with the functor that makes the tensor's update.
  template <class F>
  static void with_unit(const UpdateCall& tensor, const StepControl* control, const F& f) {
    if (tensor.residuals.rows > 0) return with_compensated_unit(tensor, control, f);
    std::visit(
        [&]<class Rule>(const Rule& rule) {
          with_codec(tensor.weights, [&]<class Codec>(const Codec& codec) {
            Codec weights = codec;
            if constexpr (std::is_same_v<Codec, Nvfp4Codec>)
              if (needs_next_maximum(tensor.weights))
                weights = codec.storing_with(tensor.next_maximum.template as<float>());
            f(UpdateUnit<Rule, Codec>{rule, unit_states<Rule>(tensor, control), weights,
                                      tensor.weight_dither});
          });
        },
        tensor.rule);
  }

  template <class F>
  static void with_compensated_unit(const UpdateCall& tensor, const StepControl* control, const F& f) {
    const Tensor& w = tensor.weights.codes;
    check(w.dtype == DType::kBF16 && tensor.residuals.dtype == DType::kBF16,
          "compensated {} weights with {} residuals; both are bf16", name_of(w.dtype),
          name_of(tensor.residuals.dtype));
    check_shape({w.rows, w.cols}, tensor.residuals);
    const auto make = [&]<class Step>(const Step& step) {
      f(KahanUnit<Step>{step, unit_states<Step>(tensor, control), ElementCodec(w),
                        ElementCodec(tensor.residuals)});
    };
    if (tensor.per_op_adamw) return make(*tensor.per_op_adamw);
    std::visit([&]<class Rule>(const Rule& rule) { make(KahanFused<Rule>{rule}); }, tensor.rule);
  }

  // items(i, write) writes the functor of tensor i and returns which numbers it has items for.
  template <class Functor, class Items>
  static void write_functors(const std::vector<size_t>& members, std::byte* image, const Items& items) {
    using Table = TensorTable<Functor>;
    int64_t first = 0;
    for (size_t k = 0; k < members.size(); ++k) {
      const UnitRange numbers = items(members[k], [&](const auto& functor) {
        check(sizeof functor == sizeof(Functor), "a functor of {} bytes in a table of {}", sizeof functor,
              sizeof(Functor));
        memcpy(image + k * sizeof(Functor), &functor, sizeof functor);
      });
      const TensorItems own{first, numbers.first - first};
      memcpy(image + Table::items_offset(int64_t(members.size())) + k * sizeof own, &own, sizeof own);
      first += numbers.count;
    }
  }

  // The amax of the call's units of new weights, which the tensor is stored with if they are all of it.
  template <class Unit>
  void find_maximum(const UpdateCall& call, const Unit* tensor, const Tensor& unit_maxima) {
    if (!needs_next_maximum(call.weights)) return;
    const UnitRange range = call.range();
    check(unit_maxima.cols >= range.count, "scratch for the maxima of {} units, {} needed", unit_maxima.cols,
          range.count);
    float* const maxima = unit_maxima.as<float>();
    UnitPasses<E, Unit>::find_maxima(exec_, range.count, {tensor, range.first, maxima});
    exec_.rows(1, LargestOf{maxima, range.count, call.next_maximum.as<float>()});
  }

  template <class Rule>
  static auto unit_states(const UpdateCall& call, const StepControl* control) {
    constexpr int kStates = int(Rule::kStates.size());
    const UnitGrid grid{call.weights.rows, call.weights.cols};
    check(call.states.size() == kStates && call.state_dithers.size() == kStates,
          "update with {} states and {} dithers, the rule has {}", call.states.size(),
          call.state_dithers.size(), kStates);
    check(call.range().first >= 0 && call.range().end() <= grid.units(), "units {}+{} of [{},{}]",
          call.range().first, call.range().count, grid.rows, grid.cols);
    check(Rule::kFactors == 0 || call.factors.values != nullptr || grid.units() == 0,
          "a rule with factors, and none given");
    check_shape(grid, call.gradient);
    UnitStates<kStates> states{.grid = grid,
                               .states = {},
                               .dithers = {},
                               .state_update = call.state_update,
                               .gradient = ElementCodec(call.gradient),
                               .control = control,
                               .factors = call.factors,
                               .mean_scale = call.mean_scale.template as<float>()};
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
