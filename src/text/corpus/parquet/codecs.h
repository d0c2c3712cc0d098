// Decompresses Parquet pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/corpus/parquet/metadata.h"

namespace mpt {

// Decompresses exactly `bytes` bytes into `target` and returns them; returns `packed` itself if the
// codec is none. Throws ParquetDamage.
std::string_view unpack(ParquetCodec codec, std::string_view packed, int64_t bytes,
                        std::string& target);

}  // namespace mpt
