// The codec of an encoded tensor, from its run-time format.
#pragma once

#include <utility>

#include "precision/codec.h"
#include "precision/codec_fp8.h"
#include "precision/codec_nvfp4.h"

namespace mpt {

// f(codec): an ElementCodec, a BlockFp8Codec or an Nvfp4Codec.
template <class F>
decltype(auto) with_codec(const EncodedTensor& t, F&& f) {
  switch (t.encoding.format) {
    case WeightFormat::kBlockFp8:
      return std::forward<F>(f)(BlockFp8Codec(t));
    case WeightFormat::kNvfp4:
      return std::forward<F>(f)(Nvfp4Codec(t));
    default:
      return std::forward<F>(f)(ElementCodec(t.codes));
  }
}

// The same before there is a tensor: f(std::type_identity<Codec>{}).
template <class F>
decltype(auto) with_codec_type(WeightFormat format, F&& f) {
  switch (format) {
    case WeightFormat::kBlockFp8:
      return std::forward<F>(f)(std::type_identity<BlockFp8Codec>{});
    case WeightFormat::kNvfp4:
      return std::forward<F>(f)(std::type_identity<Nvfp4Codec>{});
    default:
      return std::forward<F>(f)(std::type_identity<ElementCodec>{});
  }
}

template <class Codec>
Codec codec_of(const EncodedTensor& t) {
  if constexpr (std::is_same_v<Codec, ElementCodec>)
    return ElementCodec(t.codes);
  else
    return Codec(t);
}

}  // namespace mpt
