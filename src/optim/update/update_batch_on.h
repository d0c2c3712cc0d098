// UpdateBatch for one rule step and one weight format, for any Exec. Compiled separately for each
// rule (cmake/MptRules.cmake); otherwise included only by tests with other lane counts.
#pragma once

#include "core/check.h"
#include "device/exec.h"
#include "optim/update/tensor_table.h"
#include "optim/update/update_batch.h"
#include "optim/update/update_statistics_on.h"
#include "precision/largest.h"
#include "precision/weight_formats.h"

namespace mpt {

// maxima[i]: max |w'| of update block first + i of the tensor after the update.
template <class Update>
struct NextMaxima {
  const Update* tensor;
  int64_t first;
  float* maxima;

  template <class G>
  MPT_HD void operator()(G group, int64_t i) const {
    const float most = tensor->next_maximum(group, first + i);
    if (group.lane() == 0) maxima[i] = most;
  }
};

// Inputs and outputs of this tensor's update other than the weights.
template <class Step>
TensorInputs<int(Step::kStates.size())> inputs_of(const TensorSlot& slot,
                                                  const StepControl* control) {
  constexpr int kStates = int(Step::kStates.size());
  const BlockGrid grid{slot.weights.rows, slot.weights.cols};
  const auto check_shape = [&](const Tensor& t) {
    check(t.rows == grid.rows && t.cols == grid.cols,
          "update of a tensor [{},{}] with a tensor [{},{}]", grid.rows, grid.cols, t.rows, t.cols);
  };
  check(slot.states.size() == kStates && slot.state_dithers.size() == kStates,
        "update with {} states and {} dithers; the rule needs {}", slot.states.size(),
        slot.state_dithers.size(), kStates);
  check(slot.range().first >= 0 && slot.range().end() <= grid.blocks(),
        "blocks [{}, +{}) are outside a tensor [{},{}]", slot.range().first, slot.range().count,
        grid.rows, grid.cols);
  check(Step::kFactors == 0 || slot.factors.values != nullptr || grid.blocks() == 0,
        "the rule needs factors, but none are given");
  check_shape(slot.gradient);
  TensorInputs<kStates> in{.grid = grid,
                           .states = {},
                           .dithers = {},
                           .state_update = slot.state_update,
                           .gradient = ElementCodec(slot.gradient),
                           .control = control,
                           .factors = slot.factors,
                           .mean_scale = slot.mean_scale.template as<float>()};
  for (size_t i = 0; i < size_t(kStates); ++i) {
    check_shape(slot.states[i]);
    in.states[i] = ElementCodec(slot.states[i]);
    in.dithers[i] = slot.state_dithers[i];
  }
  return in;
}

template <class Step, class Codec>
TensorUpdate<Step, Codec> update_of(std::type_identity<TensorUpdate<Step, Codec>>, const Step& step,
                                    const TensorSlot& slot, const StepControl* control) {
  Codec weights = codec_of<Codec>(slot.weights);
  if constexpr (TensorUpdate<Step, Codec>::kFindsMaximum)
    if (needs_maximum(slot.weights.encoding))
      weights = weights.storing_with(slot.next_maximum.template as<float>());
  return {step, inputs_of<Step>(slot, control), weights, slot.weight_dither};
}
template <class Step>
CompensatedUpdate<Step> update_of(std::type_identity<CompensatedUpdate<Step>>, const Step& step,
                                  const TensorSlot& slot, const StepControl* control) {
  const Tensor &w = slot.weights.codes, &residuals = slot.residuals;
  check(w.dtype == DType::kBF16 && residuals.dtype == DType::kBF16,
        "compensated {} weights with {} residuals; both must be bf16", name_of(w.dtype),
        name_of(residuals.dtype));
  check(w.rows == residuals.rows && w.cols == residuals.cols,
        "weights [{},{}] with residuals [{},{}]; shapes must match", w.rows, w.cols, residuals.rows,
        residuals.cols);
  return {step, inputs_of<Step>(slot, control), ElementCodec(w), ElementCodec(residuals)};
}

template <TakesErrors Step, class Codec>
FeedbackUpdate<Step, Codec> update_of(std::type_identity<FeedbackUpdate<Step, Codec>>,
                                      const ErrorFeedback<Step>& step, const TensorSlot& slot,
                                      const StepControl* control) {
  return {update_of(std::type_identity<TensorUpdate<Step, Codec>>{}, step.step, slot, control),
          step};
}
template <class Step, class Codec, class Kept>
KeptUpdate<Step, Codec, Kept> update_of(std::type_identity<KeptUpdate<Step, Codec, Kept>>,
                                        const Step& step, const TensorSlot& slot,
                                        const StepControl* control) {
  const Tensor& kept = slot.residuals;
  check(size_of(kept.dtype) == sizeof(typename Kept::Code),
        "{} residuals of {} weights; expected numbers of {} bytes", name_of(kept.dtype),
        name_of(slot.weights.encoding.format), sizeof(typename Kept::Code));
  check(kept.rows == slot.weights.rows && kept.cols == slot.weights.cols,
        "weights [{},{}] with residuals [{},{}]; shapes must match", slot.weights.rows,
        slot.weights.cols, kept.rows, kept.cols);
  const TensorUpdate<Step, Codec> plain =
      update_of(std::type_identity<TensorUpdate<Step, Codec>>{}, step, slot, control);
  return {step, plain.in, plain.weights, {kept.as<typename Kept::Code>(), kept.stride}};
}

template <Exec E, class Config, class Update>
class UpdateBatchOn final : public UpdateBatch {
 public:
  UpdateBatchOn(const E& exec, const Config& config) : exec_(exec), config_(config) {}

  [[nodiscard]] int64_t table_bytes(int64_t tensors) const override {
    return Table::bytes(tensors);
  }

  void write_table(const StepScalars& scalars, const BatchCall& call,
                   std::byte* image) const override {
    Table::write(call.tensors.size(), image, [&](size_t i) {
      const TensorSlot& slot = call.tensors[i];
      return TableRow<Update>{update_of(scalars, slot, call.control), slot.range()};
    });
  }

  void find_maxima(const BatchCall& call) const override {
    if constexpr (Update::kFindsMaximum)
      for (size_t i = 0; i < call.tensors.size(); ++i)
        find_maximum(call.tensors[i], table(call).functors + i, call.maxima_of_blocks);
  }

  void update(const BatchCall& call) const override {
    int64_t blocks = 0;
    for (const TensorSlot& slot : call.tensors) blocks += slot.range().count;
    exec_.blocks(blocks, table(call));
  }

  void count(const StepScalars& scalars, const BatchCall& call, size_t tensor,
             const Tensor& counters) const override {
    const TensorSlot& slot = call.tensors[tensor];
    const BlockRange range = slot.range();
    check(counters.rows >= counted_spans(range.count) * E::Group::kLanes &&
              counters.cols == int64_t(sizeof(UpdateCounters)) && counters.contiguous(),
          "counters of {} blocks do not fit {} rows of {} bytes", range.count, counters.rows,
          counters.cols);
    exec_.rows(counted_spans(range.count),
               CountUpdates<Update>{update_of(scalars, slot, call.control), range.first,
                                    range.end(), counters.as<UpdateCounters>()});
  }

 private:
  using Table = TensorTable<Update>;

  [[nodiscard]] static Table table(const BatchCall& call) {
    return {call.table, int64_t(call.tensors.size()), call.control};
  }
  [[nodiscard]] Update update_of(const StepScalars& scalars, const TensorSlot& slot,
                                 const StepControl* control) const {
    return mpt::update_of(std::type_identity<Update>{},
                          Update::Step::at(config_, scalars, slot.scalars), slot, control);
  }

  // Computes the amax of the new weights in the slot's update blocks; this is the tensor's amax if
  // the slot covers the whole tensor.
  void find_maximum(const TensorSlot& slot, const Update* tensor,
                    const Tensor& maxima_of_blocks) const {
    if (!needs_maximum(slot.weights.encoding)) return;
    const BlockRange range = slot.range();
    check(maxima_of_blocks.cols >= range.count, "scratch for the maxima of {} blocks, {} needed",
          maxima_of_blocks.cols, range.count);
    float* const maxima = maxima_of_blocks.as<float>();
    exec_.blocks(range.count, NextMaxima<Update>{tensor, range.first, maxima});
    exec_.rows(1, LargestOf{maxima, range.count, slot.next_maximum.template as<float>()});
  }

  E exec_;
  Config config_;
};

template <Exec E, class R, size_t kStep>
std::unique_ptr<UpdateBatch> make_update_batch(const E& exec, const typename R::Config& config,
                                               BatchStorage storage) {
  using Step = typename R::Steps::template At<kStep>;
  const auto make = [&]<class Update>(std::type_identity<Update>) -> std::unique_ptr<UpdateBatch> {
    return std::make_unique<UpdateBatchOn<E, typename R::Config, Update>>(exec, config);
  };
  switch (storage.errors) {
    case RoundingErrors::kLost:
      return with_codec_type(storage.format, [&]<class Codec>(std::type_identity<Codec>) {
        return make(std::type_identity<TensorUpdate<Step, Codec>>{});
      });
    case RoundingErrors::kKahanFused:
      return make(std::type_identity<CompensatedUpdate<KahanFused<Step>>>{});
    case RoundingErrors::kKahanEager:
      if constexpr (requires { typename R::EagerKahan; })
        return make(std::type_identity<CompensatedUpdate<typename R::EagerKahan>>{});
      break;
    case RoundingErrors::kRemainder:
      return make(std::type_identity<KeptUpdate<Step, ElementCodec, Remainder>>{});
    case RoundingErrors::kUlpResidual:
      return make(std::type_identity<KeptUpdate<Step, ElementCodec, UlpResidual>>{});
    case RoundingErrors::kMaster:
      return with_codec_type(storage.format, [&]<class Codec>(std::type_identity<Codec>) {
        return make(std::type_identity<KeptUpdate<Step, Codec, Fp32Copy>>{});
      });
    case RoundingErrors::kFedBack:
      if constexpr (TakesErrors<Step>)
        return with_codec_type(storage.format, [&]<class Codec>(std::type_identity<Codec>) {
          return make(std::type_identity<FeedbackUpdate<Step, Codec>>{});
        });
      break;
  }
  throw LogicError(fmt::format("{} cannot treat rounding errors in way {}", R::Config::kName,
                               static_cast<int>(storage.errors)));
}

}  // namespace mpt
