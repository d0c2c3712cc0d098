// What is looked at in a SentencePiece model file before the library reads it. The numbers of
// fields are from sentencepiece_model.proto.
#pragma once

#include <string>
#include <string_view>

namespace mpt {

// What the library takes on trust, although a wrong value makes it read outside its memory or run
// very long: a description of the first such defect in a model, or "".
//
//   pieces           have at most 4096 bytes
//   character maps   (normalization) lists of texts with a double array (Darts) that finds them,
//                    of at most 256 bytes each
//   user pieces      at most 64 of them may begin one another
std::string defect_of_model(std::string_view model);

}  // namespace mpt
