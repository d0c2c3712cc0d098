// Codecs of the element-wise formats: how a unit of weights or optimizer state is decoded to FP32 and encoded
// again.
//
// load() fills the lane's part of a unit; store() encodes it from FP32 directly. A lane with less than its
// full part (the end of a row) reads 0 beyond it and writes nothing there.
#pragma once

#include "core/bf16.h"
#include "core/group.h"

namespace mpt {

// A unit's place in its tensor: `offset` in elements of storage, `count` <= kUnit elements.
struct UnitSpan {
  int64_t offset;
  int64_t count;
};

// The part of a unit that a lane of group G owns.
template <class G>
struct LanePart {
  static constexpr int kSize = kUnit / G::kLanes;
  int64_t first;  // in storage
  int size;       // 0..kSize

  MPT_HD LanePart(G group, UnitSpan unit) {
    const int64_t begin = group.lane() * kSize;
    first = unit.offset + begin;
    size = static_cast<int>(clamp_to<int64_t>(unit.count - begin, 0, kSize));
  }
};

// fp32 and bf16: element i of the format is element i of the array.
template <class T>
struct ElementCodec {
  T* data;

  template <class G>
  MPT_HD void load(G group, UnitSpan unit, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, unit);
    for (int k = 0; k < part.size; ++k) x[k] = to_float(data[part.first + k]);
    for (int k = part.size; k < LanePart<G>::kSize; ++k) x[k] = 0.0f;
  }
  template <class G>
  MPT_HD void store(G group, UnitSpan unit, const float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, unit);
    for (int k = 0; k < part.size; ++k) data[part.first + k] = from_float<T>(x[k]);
  }
};

}  // namespace mpt
