// The list of weight formats and what follows from it. Adding one takes a header in codecs/, and
// its include, name and enumerator here (docs/code/add_a_format.md).
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <utility>

#include "core/type_list.h"
#include "precision/codecs/block_fp8.h"
#include "precision/codecs/elements.h"
#include "precision/codecs/mxfp8.h"
#include "precision/codecs/nvfp4.h"

namespace mpt {

// Formats of the linear layers' weights, which have no other copy; messages list them in this
// order.
using WeightFormats =
    TypeList<Fp32Weights, Bf16Weights, BlockFp8Weights, Nvfp4Weights, Mxfp8Weights>;

enum class WeightFormat : uint8_t {
  kF32 = WeightFormats::kIndex<Fp32Weights>,
  kBF16 = WeightFormats::kIndex<Bf16Weights>,
  kBlockFp8 = WeightFormats::kIndex<BlockFp8Weights>,
  kNvfp4 = WeightFormats::kIndex<Nvfp4Weights>,
  kMxfp8 = WeightFormats::kIndex<Mxfp8Weights>,
};
static_assert(WeightFormat::kBF16 == kDefaultWeights);

namespace format_detail {
template <class... W>
constexpr std::array<std::string_view, sizeof...(W)> names(TypeList<W...>) {
  return {W::kName...};
}
}  // namespace format_detail
template <>
struct EnumNames<WeightFormat> {
  static constexpr auto kNames = format_detail::names(WeightFormats{});
};

// --- requirements on a format; the compiler's notes name a missing member ------------------------

template <class C>
concept WeightCodec = std::is_trivially_copyable_v<C> &&
    requires(const C& codec, SerialGroup group, BlockSpan span, float (&x)[kUpdateBlock],
             const Dither<kUpdateBlock>& dither) {
  codec.load(group, span, x);
  codec.store(group, span, x, dither);
  codec.round(group, span, x, dither);
  { codec.memory(span) } -> std::same_as<ElementMemory>;
  { codec.saturated_blocks(group, span, x) } -> std::same_as<int>;
  { C::kSmallestRatio } -> std::same_as<const float&>;
  { C::kTensorScale } -> std::same_as<const bool&>;
  { C::kNeedsMaximum } -> std::same_as<const bool&>;
  { C::kRescales } -> std::same_as<const bool&>;
  { C::kRelativeScales } -> std::same_as<const bool&>;
};
template <class C>
concept HasTensorScale = requires(const C& codec, float amax) {
  { codec.first_tensor_scale(amax) } -> std::same_as<float>;
};
template <class C>
concept StoresWithMaximum = requires(const C& codec, const float* maximum) {
  { codec.storing_with(maximum) } -> std::same_as<C>;
};
template <class C>
concept Rescales = requires(const C& codec, SerialGroup group, BlockSpan span, float scale) {
  { C::must_rescale(scale) } -> std::same_as<bool>;
  { C::rescaled_tensor_scale(scale) } -> std::same_as<float>;
  codec.rescale(group, span);
};
template <class C>
concept HasRelativeScales = requires(const C& codec, SerialGroup group, BlockSpan span,
                                     float (&x)[kUpdateBlock]) {
  { C::kBlock } -> std::same_as<const int64_t&>;
  { codec.block_scale(int64_t{}, int64_t{}) } -> std::same_as<float>;
  codec.relative_scales(group, span, x, x);
};

// Requirements on the host.
template <class W>
concept WeightsOnHost = requires(const WeightEncoding& encoding) {
  { W::kName } -> std::convertible_to<std::string_view>;
  { W::layout(encoding) } -> std::same_as<EncodedLayout>;
  { W::kNominalBytes } -> std::same_as<const double&>;  // per parameter, as papers count
  {
    W::details(encoding)
    } -> std::same_as<std::string>;  // shown in reports after the name; "": nothing
};
// Required if the codec sets kNeedsMaximum or kRescales: whether these options use it.
template <class W>
concept SaysWhetherMaximum = requires(const WeightEncoding& encoding) {
  { W::needs_maximum(encoding) } -> std::same_as<bool>;
};
template <class W>
concept SaysWhetherRescaled = requires(const WeightEncoding& encoding) {
  { W::rescales(encoding) } -> std::same_as<bool>;
};

namespace format_detail {
template <WeightsOnHost W>
requires WeightCodec<typename W::Codec>
constexpr bool is_complete(std::type_identity<W>) {
  using C = typename W::Codec;
  static_assert(!C::kTensorScale || HasTensorScale<C>,
                "a codec with kTensorScale and no first_tensor_scale()");
  static_assert(!C::kNeedsMaximum || (StoresWithMaximum<C> && SaysWhetherMaximum<W>),
                "kNeedsMaximum: the codec has storing_with(), the format needs_maximum()");
  static_assert(!C::kRescales || (Rescales<C> && SaysWhetherRescaled<W>),
                "kRescales: the codec has must_rescale(), rescale() and rescaled_tensor_scale(), "
                "the format rescales()");
  static_assert(!C::kRelativeScales || HasRelativeScales<C>,
                "kRelativeScales: the codec has kBlock, block_scale() and relative_scales()");
  constexpr EncodedLayout kLayout = W::layout({});
  static_assert(kLayout.tensor_scale == C::kTensorScale,
                "format and codec differ on the tensor's scale");
  static_assert(kUpdateBlock % kLayout.whole == 0 && kUpdateBlock % kLayout.elements_per_code == 0);
  static_assert(!kLayout.block_scales || kUpdateBlock % kLayout.block_scales->block == 0,
                "an update block has whole scale blocks, so that no scale belongs to two of them");
  return true;
}
template <class... W>
constexpr bool are_complete(TypeList<W...>) {
  return (is_complete(std::type_identity<W>{}) && ...);
}
}  // namespace format_detail
static_assert(format_detail::are_complete(WeightFormats{}));

// --- the format of a tensor ----------------------------------------------------------------------

// Calls f(std::type_identity<W>{}).
template <size_t kFrom = 0, class F>
decltype(auto) with_format(WeightFormat format, const F& f) {
  if constexpr (kFrom + 1 < WeightFormats::kSize) {
    if (size_t(format) != kFrom) return with_format<kFrom + 1>(format, f);
  }
  return f(std::type_identity<WeightFormats::At<kFrom>>{});
}

template <class Codec>
Codec codec_of(const EncodedTensor& t) {
  if constexpr (std::is_same_v<Codec, ElementCodec>)
    return ElementCodec(t.codes);
  else
    return Codec(t);
}

// Calls f(the tensor's codec).
template <class F>
decltype(auto) with_codec(const EncodedTensor& t, const F& f) {
  return with_format(t.encoding.format, [&]<class W>(std::type_identity<W>) -> decltype(auto) {
    return f(codec_of<typename W::Codec>(t));
  });
}

// For a format without a tensor: calls f(std::type_identity<Codec>{}).
template <class F>
decltype(auto) with_codec_type(WeightFormat format, const F& f) {
  return with_format(format, [&]<class W>(std::type_identity<W>) -> decltype(auto) {
    return f(std::type_identity<typename W::Codec>{});
  });
}

EncodedLayout layout_of(const WeightEncoding& encoding);
// Whether the amax of a tensor's new weights must be known before storing any of them.
bool needs_maximum(const WeightEncoding& encoding);
// Whether the tensor's scale may move after an update.
bool rescales(const WeightEncoding& encoding);
// "blocks of 128, pow2 scales"; "" for formats without scales.
std::string details_of(const WeightEncoding& encoding);
double nominal_bytes(WeightFormat format);

// Whether elements share scales.
bool is_scaled(WeightFormat format);
// Unscaled format of the given type, fp32 or bf16.
WeightFormat plain_format(DType dtype);
// Format of embedding, norms and head: fp32 if the linear layers are fp32, else bf16.
WeightFormat unscaled_format(WeightFormat linears);
// Whether additive steps may follow block scales.
bool has_relative_scales(WeightFormat format);
// Formats with relative scales, as text: "nvfp4".
std::string formats_with_relative_scales();

}  // namespace mpt
