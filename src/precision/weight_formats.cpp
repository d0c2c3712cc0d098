#include "precision/weight_formats.h"

#include <vector>

#include <fmt/ranges.h>

namespace mpt {

EncodedLayout layout_of(const WeightEncoding& encoding) {
  return with_format(encoding.format,
                     [&]<class W>(std::type_identity<W>) { return W::layout(encoding); });
}

bool needs_maximum(const WeightEncoding& encoding) {
  return with_format(encoding.format, [&]<class W>(std::type_identity<W>) {
    if constexpr (W::Codec::kNeedsMaximum) return W::needs_maximum(encoding);
    return false;
  });
}

bool rescales(const WeightEncoding& encoding) {
  return with_format(encoding.format, [&]<class W>(std::type_identity<W>) {
    if constexpr (W::Codec::kRescales) return W::rescales(encoding);
    return false;
  });
}

std::string details_of(const WeightEncoding& encoding) {
  return with_format(encoding.format,
                     [&]<class W>(std::type_identity<W>) { return W::details(encoding); });
}

double nominal_bytes(WeightFormat format) {
  return with_format(format, []<class W>(std::type_identity<W>) { return W::kNominalBytes; });
}

bool is_scaled(WeightFormat format) {
  return with_codec_type(
      format, []<class C>(std::type_identity<C>) { return !std::is_same_v<C, ElementCodec>; });
}

WeightFormat plain_format(DType dtype) {
  for (size_t i = 0; i < WeightFormats::kSize; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (!is_scaled(format) && layout_of({.format = format}).codes == dtype) return format;
  }
  throw LogicError(fmt::format("no weight format stores {}", name_of(dtype)));
}

WeightFormat unscaled_format(WeightFormat linears) {
  const WeightFormat fp32 = plain_format(DType::kF32);
  return linears == fp32 ? fp32 : plain_format(DType::kBF16);
}

bool has_relative_scales(WeightFormat format) {
  return with_codec_type(format, []<class C>(std::type_identity<C>) { return C::kRelativeScales; });
}

std::string formats_with_relative_scales() {
  std::vector<std::string_view> names;
  WeightFormats::each([&]<class W>(std::type_identity<W>) {
    if (W::Codec::kRelativeScales) names.push_back(W::kName);
  });
  return fmt::format("{}", fmt::join(names, " or "));
}

}  // namespace mpt
