#include "precision/fp8_scaling.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/float_format.h"
#include "device/gemm.h"

namespace mpt {
namespace {

constexpr int64_t kFloatsApart = kScaleAlignment / int64_t{sizeof(float)};

float max_value_of(DType format) {
  return format == DType::kE4M3 ? kE4M3.max_value : kE5M2.max_value;
}

template <class T>
std::vector<T> downloaded(Device& device, const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.elements()));
  device.download(tensor, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace

Fp8Scaling::Fp8Scaling(Fp8ScalingOptions options, Device& device, Allocator& allocator)
    : options_(std::move(options)), device_(device), ops_(make_ops<Fp8Ops>(device.stream())) {
  const auto per_slot = [&](DType dtype, int64_t rows) {
    return allocator.tensor(kScratchMemory, dtype, rows, options_.slots);
  };
  history_ = per_slot(DType::kF32, delayed() ? options_.config.fp8_history : 1);
  scale_ = per_slot(DType::kF32, 1);
  used_scale_ = per_slot(DType::kF32, 1);
  scale_inv_ = allocator.tensor(kScratchMemory, DType::kF32, options_.slots, kFloatsApart);
  last_amax_ = per_slot(DType::kF32, 1);
  frozen_ = per_slot(DType::kI32, 1);
  if (scale_.data != nullptr) reset();  // otherwise a plan
}

void Fp8Scaling::reset() {
  const std::vector<float> zeros(size_t(history_.elements())),
      ones(static_cast<size_t>(scale_inv_.elements()), 1.0f);
  device_.upload(reinterpret_cast<const std::byte*>(zeros.data()), history_);
  for (const Tensor& t : {scale_, used_scale_, scale_inv_})
    device_.upload(reinterpret_cast<const std::byte*>(ones.data()), t);
}

Fp8Slot Fp8Scaling::slot(int64_t i) const {
  check(i >= 0 && i < options_.slots, "slot {} of {} is out of range", i, options_.slots);
  return {.scale = scale_.as<float>() + i,
          .amax = history_.as<float>() + i,
          .used_scale = used_scale_.as<float>() + i,
          .scale_inv = scale_inv_.as<float>() + i * kFloatsApart};
}

Fp8CastCall Fp8Scaling::call_of(int64_t i, const Fp8Part& part, Fp8CastKind kind) const {
  return {.source = part.source,
          .through = part.through,
          .target = part.target,
          .transposed = part.transposed,
          .slot = slot(i),
          .kind = kind};
}

Fp8CastCall Fp8Scaling::writing_call(int64_t i, const Fp8Part& part, Fp8CastKind kind) const {
  const Fp8CastCall call = call_of(i, part, kind);
  check(call.format() == options_.format, "cast to {} with scales for {}", name_of(call.format()),
        name_of(options_.format));
  return call;
}

void Fp8Scaling::fit_scale(int64_t i, std::span<const Fp8Part> parts, Fp8Casts& casts) {
  for (const Fp8Part& part : parts) casts.gather_amax(call_of(i, part, Fp8CastKind::kNoFold));
  ops_->scale_from_amax(slot(i), max_value_of(options_.format));
}

void Fp8Scaling::cast(int64_t i, std::span<const Fp8Part> parts, Fp8CastKind kind,
                      Fp8Casts& casts) {
  const bool fresh = !delayed() && kind != Fp8CastKind::kAgain;
  if (fresh) fit_scale(i, parts, casts);
  for (const Fp8Part& part : parts)
    casts.cast(writing_call(i, part, fresh ? Fp8CastKind::kNoFold : kind));
}

std::optional<Fp8CastCall> Fp8Scaling::call_ahead(int64_t i, const Fp8Part& part,
                                                  Fp8CastKind kind) const {
  if (!delayed()) return std::nullopt;
  return writing_call(i, part, kind);
}

void Fp8Scaling::observe(int64_t i, std::span<const Fp8Part> parts, Fp8CastKind kind) {
  if (kind == Fp8CastKind::kAgain) return;
  if (!delayed()) {
    fit_scale(i, parts, *ops_);
  } else if (kind == Fp8CastKind::kFold) {
    for (const Fp8Part& part : parts) ops_->gather_amax(call_of(i, part, kind));
  }
  ops_->note_scale(slot(i));
}

void Fp8Scaling::roll() {
  if (!delayed()) return;
  ops_->roll(
      {.history = history_,
       .scale = scale_,
       .last_amax = last_amax_,
       .frozen = frozen_,
       .scaled_max = std::ldexp(max_value_of(options_.format), -int(options_.config.fp8_margin)),
       .algorithm = options_.config.fp8_amax_algo});
}

std::vector<NamedTensor> Fp8Scaling::named_states() const {
  if (!delayed()) return {};
  return {{fmt::format("fp8_{}_amax_history", options_.name), history_, 2},
          {fmt::format("fp8_{}_scale", options_.name), scale_, 1}};
}

std::vector<Fp8SlotState> Fp8Scaling::slot_states() const {
  const auto history = downloaded<float>(device_, history_),
             scale = downloaded<float>(device_, scale_),
             last = downloaded<float>(device_, last_amax_);
  const auto frozen = downloaded<int32_t>(device_, frozen_);
  std::vector<Fp8SlotState> states;
  for (size_t i = 0; i < scale.size(); ++i) {
    Fp8SlotState state{.scale = scale[i], .last_amax = last[i], .frozen = frozen[i]};
    for (size_t h = i; h < history.size(); h += scale.size())
      state.history_amax = std::max(state.history_amax, history[h]);
    states.push_back(state);
  }
  return states;
}

}  // namespace mpt
