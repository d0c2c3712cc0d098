// Checks a SentencePiece model file before the library reads it. Field numbers are from
// sentencepiece_model.proto.
#pragma once

#include <string>
#include <string_view>

namespace mpt {

// Checks what the library takes on trust although a wrong value makes it read out of bounds or run
// very long. Returns a description of the first such defect in a model, or "".
//
//   pieces           at most 4096 bytes each
//   character maps   (normalization) lists of texts with a double array (Darts) that finds them,
//                    at most 256 bytes each
//   user pieces      at most 64 that are prefixes of one another
std::string defect_of_model(std::string_view model);

}  // namespace mpt
