// Unpacks what Parquet packs page by page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/corpus/parquet/metadata.h"

namespace mpt {

// Unpacks exactly `bytes` bytes into `target` and returns them; `packed` itself where the codec is
// none. Throws ParquetDamage.
std::string_view unpack(ParquetCodec codec, std::string_view packed, int64_t bytes,
                        std::string& target);

}  // namespace mpt
