// OptimizerOps for any Exec.
#pragma once

#include <utility>
#include <vector>

#include "core/check.h"
#include "device/exec.h"
#include "optim/rule_list.h"
#include "optim/update/apollo_e_on.h"
#include "optim/update/gradient_norm_on.h"
#include "optim/update/optimizer_ops.h"
#include "optim/update/orthogonalization_on.h"
#include "optim/update/scale_kernels.h"
#include "optim/update/tensor_inputs.h"
#include "optim/update/tensor_table.h"
#include "precision/weight_formats.h"

namespace mpt {

// Defined in update_batch_on.h, which is compiled separately for every step of every rule.
template <Exec E, class R, size_t kStep>
std::unique_ptr<UpdateBatch> make_update_batch(const E& exec, const typename R::Config& config,
                                               BatchStorage storage);

template <Exec E>
class OptimizerOpsOn : public OptimizerOps {
 public:
  explicit OptimizerOpsOn(E exec) : exec_(exec) {}

  [[nodiscard]] std::unique_ptr<UpdateBatch> make_batch(const RuleConfig& rule, size_t step,
                                                        BatchStorage storage) const override {
    return with_rule(rule, [&]<class R>(std::type_identity<R>, const typename R::Config& config) {
      return make_batch_of<R>(config, step, storage, std::make_index_sequence<R::Steps::kSize>{});
    });
  }

  void find_mean_scale(const EncodedTensor& weights, const Tensor& sums,
                       const Tensor& mean) override {
    check(has_relative_scales(weights.encoding.format), "{} weights have no relative block scales",
          name_of(weights.encoding.format));
    check(sums.cols >= weights.rows, "scratch for the scales of {} rows, {} needed", sums.cols,
          weights.rows);
    double* const of_row = sums.as<double>();
    with_codec(weights, [&]<class Codec>(const Codec& codec) {
      if constexpr (Codec::kRelativeScales)
        exec_.rows(weights.rows, RowScaleSum<Codec>{codec, weights.cols, of_row});
    });
    exec_.rows(1, MeanScale{of_row, weights.rows, weights.elements(), mean.as<float>()});
  }

  void copy_weights(const EncodedTensor& weights, BlockRange blocks, const Tensor& to) override {
    const BlockGrid grid{weights.rows, weights.cols};
    check(to.dtype == DType::kF32 && to.rows == grid.rows && to.cols == grid.cols,
          "copy of weights [{},{}] to {} [{},{}]", grid.rows, grid.cols, name_of(to.dtype), to.rows,
          to.cols);
    with_codec(weights, [&]<class Codec>(const Codec& codec) {
      exec_.blocks(blocks.count,
                   CopyWeights<Codec>{grid, codec, blocks.first, {to.as<float>(), to.stride}});
    });
  }

  void mean_direction(const MeanDirectionCall& call) override {
    const BlockGrid grid{call.gradient.rows, call.gradient.cols};
    check_shape(grid, call.mean);
    check_shape(grid, call.direction);
    exec_.blocks(grid.blocks(), MeanDirection{grid,
                                              ElementCodec(call.gradient),
                                              ElementCodec(call.mean),
                                              call.state_update,
                                              call.control,
                                              MeanGradient::of(call.options.momentum),
                                              call.options.nesterov,
                                              {call.direction.as<float>(), call.direction.stride}});
  }
  void divide_by_norm(const Tensor& x, const Tensor& squares) override {
    check(x.contiguous(), "norm of a matrix with padding");
    exec_.rows(1, Divisor{squares.as<double>(), squares.cols});
    exec_.elements(x.elements(), Divide{squares.as<double>(), x.as<float>()});
  }
  void combine(const Tensor& x, float alpha, const Tensor& y, float beta) override {
    check(x.contiguous() && y.contiguous() && x.elements() == y.elements(),
          "[{},{}] combined with [{},{}]", x.rows, x.cols, y.rows, y.cols);
    exec_.elements(x.elements(), Combine{x.as<float>(), alpha, y.as<float>(), beta});
  }

  void clear_maxima(const Tensor& maxima) override {
    exec_.elements(maxima.cols, ClearMaximum{maxima.as<float>()});
  }

  void take_maximum(const EncodedTensor& weights, const Tensor& next_maximum,
                    const StepControl* control) override {
    exec_.elements(
        1, TakeMaximum{next_maximum.as<float>(), control, weights.tensor_scale.as<float>()});
  }

  [[nodiscard]] int64_t norm_table_bytes(const NormCall& call) const override {
    return TensorTable<Sum>::bytes(int64_t(own_gradients(call).size())) +
           int64_t(call.tiles.spans().size() * sizeof(TileSpan));
  }

  // The tile spans follow the TensorTable.
  void write_norm_table(const NormCall& call, std::byte* image) const override {
    const std::vector<size_t> own = own_gradients(call);
    TensorTable<Sum>::write(own.size(), image, [&](size_t k) {
      const size_t i = own[k];
      const Tensor& g = call.gradients[i];
      const OwnTiles& tiles = call.tiles.own(i);
      check(tiles.first + tiles.count <= square_sums(g.rows, g.cols),
            "tiles [{}, +{}) are outside a gradient [{},{}]", tiles.first, tiles.count, g.rows,
            g.cols);
      return TableRow<Sum>{
          Sum{{g.rows, g.cols}, ElementCodec(g), call.partial.as<double>(), tiles.shift},
          BlockRange{tiles.first, tiles.count}};
    });
    const std::vector<TileSpan>& spans = call.tiles.spans();
    if (!spans.empty())
      memcpy(image + TensorTable<Sum>::bytes(int64_t(own.size())), spans.data(),
             spans.size() * sizeof(TileSpan));
  }

  void sum_gradients(const NormCall& call) override {
    check_partial(call);
    const auto own = int64_t(own_gradients(call).size());
    exec_.rows(call.tiles.own_tiles(), TensorTable<Sum>(call.table, own, nullptr));
  }

  void compute_clip(const NormCall& call) override {
    check_partial(call);
    const int64_t tiles = call.tiles.tiles(), sums = sums_of_tiles(tiles);
    check(call.sums.cols >= sums, "scratch for {} sums of tiles, {} needed", call.sums.cols, sums);
    const std::byte* const spans =
        call.table + TensorTable<Sum>::bytes(int64_t(own_gradients(call).size()));
    exec_.rows(
        sums, SumOfTiles{call.partial.as<double>(), tiles, reinterpret_cast<const TileSpan*>(spans),
                         int64_t(call.tiles.spans().size()), call.sums.as<double>()});
    exec_.rows(1,
               ComputeClip{call.sums.as<double>(), sums, call.losses.as<double>(),
                           call.losses.elements(), call.clip_grad_norm, call.limits, call.control});
  }

  void project(const ProjectionCall& call) override {
    const BlockGrid grid{call.weights.rows, call.weights.cols};
    const ProjectionShape shape = projection_shape(grid.rows, grid.cols);
    const int64_t rank = call.projection.rows;
    check_shape(grid, call.gradient);
    check(call.projection.cols == shape.depth && call.second.rows == shape.channels &&
              call.second.cols == rank && call.projection.contiguous() && call.second.contiguous(),
          "projection [{},{}] and moments [{},{}] do not fit a tensor [{},{}]", rank,
          call.projection.cols, call.second.rows, call.second.cols, grid.rows, grid.cols);
    const ProjectionScratch& scratch = call.scratch;
    float* const g = scratch.gradient.as<float>();
    with_exact_weights(call, [&]<class Weights>(const Weights& weights) {
      exec_.blocks(grid.blocks(), ExponentGradient<Weights>{
                                      grid, weights, ElementCodec(call.gradient), call.control, g});
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
    with_codec(tensor, [&](const auto& codec) {
      sum_squares({tensor.rows, tensor.cols}, codec, partial);
    });
  }

  [[nodiscard]] int64_t counter_rows(int64_t blocks) const override {
    return counted_spans(blocks) * E::Group::kLanes;
  }

 private:
  template <class Codec>
  void sum_squares(const BlockGrid& grid, const Codec& codec, const Tensor& partial) {
    exec_.rows(square_sums(grid.rows, grid.cols),
               SquareSum<Codec>{grid, codec, partial.as<double>(), 0});
  }

  using Sum = SquareSum<ElementCodec>;

  // Gradients with update blocks on this rank.
  static std::vector<size_t> own_gradients(const NormCall& call) {
    std::vector<size_t> own;
    for (size_t i = 0; i < call.gradients.size(); ++i)
      if (call.tiles.own(i).count > 0) own.push_back(i);
    return own;
  }
  static void check_partial(const NormCall& call) {
    check(call.partial.cols >= call.tiles.tiles(), "scratch for {} sums of squares, {} needed",
          call.partial.cols, call.tiles.tiles());
  }

  template <class R, size_t... i>
  [[nodiscard]] std::unique_ptr<UpdateBatch> make_batch_of(const typename R::Config& config,
                                                           size_t step, BatchStorage storage,
                                                           std::index_sequence<i...>) const {
    std::unique_ptr<UpdateBatch> batch;
    ((step == i ? void(batch = make_update_batch<E, R, i>(exec_, config, storage)) : void()), ...);
    check(batch != nullptr, "step {} of {}, which has {} steps", step, R::Config::kName,
          sizeof...(i));
    return batch;
  }

  // Calls f with a loader of the weights as the rule sees them.
  template <class F>
  static void with_exact_weights(const ProjectionCall& call, const F& f) {
    const auto kept = [&]<class Kept, class Codec>(std::type_identity<Kept>, const Codec& codec) {
      f(ExactWeights<Codec, Kept>{
          codec, {call.residuals.as<typename Kept::Code>(), call.residuals.stride}});
    };
    switch (call.rounding) {
      case WeightRounding::kRemainder:
        return kept(std::type_identity<Remainder>{}, codec_of<ElementCodec>(call.weights));
      case WeightRounding::kUlpResidual:
        return kept(std::type_identity<UlpResidual>{}, codec_of<ElementCodec>(call.weights));
      case WeightRounding::kMaster:
        return with_codec(call.weights,
                          [&](const auto& codec) { kept(std::type_identity<Fp32Copy>{}, codec); });
      case WeightRounding::kNearest:
      case WeightRounding::kStochastic:
      case WeightRounding::kKahan:
        return with_codec(call.weights, f);
    }
  }

  void project_columns(const ProjectionCall& call, const ProjectionShape& shape) {
    const ColumnTiles tiles(shape.depth);
    const int64_t rank = call.projection.rows;
    const BlockGrid grid{tiles.count(), shape.channels};
    const ProjectionScratch& scratch = call.scratch;
    float* const sums = scratch.tiles.as<float>();
    exec_.blocks(grid.blocks(),
                 ProjectColumnTiles{scratch.gradient.as<float>(), call.projection.as<float>(),
                                    tiles, grid, rank, sums});
    exec_.elements(rank * shape.channels, SumColumnTiles{sums, tiles.count(), rank, shape.channels,
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

  static void check_shape(const BlockGrid& grid, const Tensor& t) {
    check(t.rows == grid.rows && t.cols == grid.cols,
          "update of a tensor [{},{}] with a tensor [{},{}]", grid.rows, grid.cols, t.rows, t.cols);
  }

  E exec_;
};

}  // namespace mpt
