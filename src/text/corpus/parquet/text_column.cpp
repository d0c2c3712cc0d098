#include "text/corpus/parquet/text_column.h"

#include <algorithm>

#include <zlib.h>

#include "core/check.h"
#include "text/corpus/parquet/codecs.h"
#include "text/corpus/parquet/compact_protocol.h"

namespace mpt {
namespace {

constexpr int64_t kPageHeaderBytes = int64_t{4} << 10;   // first read
constexpr int64_t kMostHeaderBytes = int64_t{16} << 20;  // including statistics, which may be long

using Kind = ParquetPage::Kind;

uint32_t checksum_of(std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

}  // namespace

ParquetTextColumn::ParquetTextColumn(const std::string& path, const std::string& name)
    : path_(path),
      file_(posix_file_system().open_read(path)),
      column_(read_parquet_column(*file_, path, name)) {}

int64_t ParquetTextColumn::bytes_read() const {
  const bool at_end = chunk_ == column_.chunks.size() && left_in_chunk_ == 0;
  return at_end ? file_->size() : at_;
}

bool ParquetTextColumn::next(std::string_view& text) try {
  while (left_in_chunk_ == 0) {
    if (chunk_ == column_.chunks.size()) return false;
    begin_chunk();
  }
  while (left_in_page_ == 0) load_page();
  --left_in_page_;
  --left_in_chunk_;
  ++row_;
  const bool there = !column_.only_nulls && (!column_.optional || levels_.next() == 1);
  text = there ? strings_->next() : std::string_view();
  return true;
} catch (const ParquetDamage& found) {
  throw error("{}: row group {} of {} is damaged near row {} and byte {}: {}", path_, chunk_,
              column_.chunks.size(), row_, at_, found.what());
}

void ParquetTextColumn::begin_chunk() {
  const ParquetChunk& chunk = column_.chunks[chunk_++];
  at_ = chunk.begin;
  end_ = chunk.end;
  left_in_chunk_ = chunk.values;
  left_in_page_ = column_.only_nulls ? left_in_chunk_ : 0;  // no page is needed
  dictionary_.clear();
}

void ParquetTextColumn::load_page() {
  const ParquetPage page = read_header();
  at_ += page.header_bytes;
  if (page.kind == Kind::kDictionary)
    load_dictionary(page);
  else if (page.kind != Kind::kIndex)
    load_data(page);
  at_ += page.packed_bytes;
}

// The header's length is known only once it has been read.
ParquetPage ParquetTextColumn::read_header() {
  for (int64_t wanted = kPageHeaderBytes;; wanted *= 4) {
    const int64_t count = std::min({wanted, end_ - at_, kMostHeaderBytes});
    header_.resize(static_cast<size_t>(count));
    file_->read(at_, std::as_writable_bytes(std::span(header_)));
    try {
      const ParquetPage page = read_parquet_page(header_);
      if (page.packed_bytes > end_ - at_ - page.header_bytes)
        throw damage("a page of {} bytes, where the row group's text has {} left",
                     page.packed_bytes, end_ - at_ - page.header_bytes);
      return page;
    } catch (const ParquetEndsEarly&) {
      if (count < wanted || count == kMostHeaderBytes) throw;
    } catch (const ParquetDamage&) {
      throw;
    } catch (const Error& refused) {
      throw error("{}: row group {}: {}", path_, chunk_, refused.what());
    }
  }
}

std::string_view ParquetTextColumn::read_packed(const ParquetPage& page, std::string& target) {
  target.resize(static_cast<size_t>(page.packed_bytes));
  file_->read(at_, std::as_writable_bytes(std::span(target)));
  if (page.checksum && checksum_of(target) != *page.checksum)
    throw damage("a page's checksum is {:08x}; expected {:08x}", checksum_of(target),
                 *page.checksum);
  return target;
}

void ParquetTextColumn::load_dictionary(const ParquetPage& page) {
  if (!dictionary_.empty()) throw damage("a second dictionary");
  if (page.encoding != ParquetEncoding::kPlain &&
      page.encoding != ParquetEncoding::kPlainDictionary)
    throw damage("a dictionary in encoding {}", static_cast<int>(page.encoding));
  const std::string_view packed = read_packed(page, packed_dictionary_);
  std::string_view bytes = unpack(codec(), packed, page.bytes, dictionary_bytes_);
  for (int64_t i = 0; i < page.values; ++i) dictionary_.push_back(take_plain_string(bytes));
}

// Version-1 levels are in the compressed bytes, after their length; version-2 levels precede them.
void ParquetTextColumn::load_data(const ParquetPage& page) {
  if (page.values > left_in_chunk_)
    throw damage("a page of {} values, where the row group has {} left", page.values,
                 left_in_chunk_);
  std::string_view packed = read_packed(page, packed_);
  std::string_view levels, bytes;
  if (page.kind == Kind::kDataV2) {
    take_bytes(packed, static_cast<uint64_t>(page.repetition_bytes));
    levels = take_bytes(packed, static_cast<uint64_t>(page.definition_bytes));
    const int64_t left = page.bytes - page.repetition_bytes - page.definition_bytes;
    bytes = unpack(page.packed ? codec() : ParquetCodec::kNone, packed, left, page_);
  } else {
    bytes = unpack(codec(), packed, page.bytes, page_);
    if (column_.optional) levels = take_plain_string(bytes);
  }
  levels_ = HybridNumbers(levels, 1);
  strings_ = make_page_strings(page.encoding, bytes, page.values, dictionary_);
  left_in_page_ = page.values;
}

}  // namespace mpt
