// What a backend that has several implementations of attention says of its choice.
#pragma once

#include <string>

#include "device/attention.h"

namespace mpt {

class AttentionChoice {
 public:
  virtual ~AttentionChoice() = default;
  // Which one computes calls of this shape, readable, and why not a faster one. Asks a library at
  // most once.
  virtual std::string in_use(const AttentionShape& shape, DType storage) = 0;
};

// Empty where a backend has only one.
inline std::string attention_in_use(Attention& attention, const AttentionShape& shape,
                                    DType storage) {
  auto* const choice = dynamic_cast<AttentionChoice*>(&attention);
  return choice == nullptr ? "" : choice->in_use(shape, storage);
}

}  // namespace mpt
