#include "text/corpus/parquet/codecs.h"

#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include "core/check.h"
#include "text/corpus/parquet/compact_protocol.h"

namespace mpt {
namespace {

// zstd compresses a run of 128 KiB to 4 bytes; no codec does better.
constexpr int64_t kMostRatio = int64_t{1} << 16;

void unpack_snappy(std::string_view packed, std::string& target) {
  size_t bytes = 0;
  if (!snappy::GetUncompressedLength(packed.data(), packed.size(), &bytes) ||
      bytes != target.size())
    throw damage("snappy data of {} bytes; expected {}", bytes, target.size());
  if (!snappy::RawUncompress(packed.data(), packed.size(), target.data()))
    throw damage("damaged snappy data");
}

// Accepts gzip, with any number of members, and zlib, which some writers produce.
void unpack_gzip(std::string_view packed, std::string& target) {
  constexpr int kEitherWrapper = 15 + 32;
  z_stream zlib{};
  check(inflateInit2(&zlib, kEitherWrapper) == Z_OK, "inflateInit2 failed");
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  zlib.avail_in = static_cast<uInt>(packed.size());
  zlib.next_out = reinterpret_cast<Bytef*>(target.data());
  zlib.avail_out = static_cast<uInt>(target.size());
  int status = inflate(&zlib, Z_FINISH);
  while (status == Z_STREAM_END && zlib.avail_in > 0 && zlib.avail_out > 0 &&
         inflateReset(&zlib) == Z_OK)
    status = inflate(&zlib, Z_FINISH);
  const bool whole = status == Z_STREAM_END && zlib.avail_out == 0;
  inflateEnd(&zlib);
  if (!whole) throw damage("damaged gzip data");
}

void unpack_zstd(std::string_view packed, std::string& target) {
  const size_t bytes = ZSTD_decompress(target.data(), target.size(), packed.data(), packed.size());
  if (ZSTD_isError(bytes) != 0) throw damage("damaged zstd data: {}", ZSTD_getErrorName(bytes));
  if (bytes != target.size())
    throw damage("zstd data of {} bytes; expected {}", bytes, target.size());
}

}  // namespace

std::string_view unpack(ParquetCodec codec, std::string_view packed, int64_t bytes,
                        std::string& target) {
  if (codec == ParquetCodec::kNone) {
    if (std::ssize(packed) != bytes) throw damage("a page of {} bytes in {}", bytes, packed.size());
    return packed;
  }
  if (bytes == 0 && packed.empty()) return packed;  // nothing but nulls
  if (bytes > kMostRatio * std::ssize(packed))
    throw damage("a page of {} bytes packed into {}", bytes, packed.size());
  target.resize(static_cast<size_t>(bytes));
  if (codec == ParquetCodec::kSnappy) unpack_snappy(packed, target);
  if (codec == ParquetCodec::kGzip) unpack_gzip(packed, target);
  if (codec == ParquetCodec::kZstd) unpack_zstd(packed, target);
  return target;
}

}  // namespace mpt
