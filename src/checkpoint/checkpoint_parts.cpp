#include "checkpoint/checkpoint_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint_state.h"
#include "core/check.h"
#include "core/text/counted.h"
#include "device/device.h"

namespace mpt {
namespace {

std::string key_of(const StoredSpan& span) { return fmt::format("{}@{}", span.tensor, span.first); }

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

StoredTensorInfo info_of(const NamedTensor& named) {
  return {named.name, stored_type(named.tensor.dtype), named.shape()};
}

// Appends a view in pieces of at most kMostBytes.
void append_blocks(std::vector<Tensor>& blocks, const Tensor& view) {
  if (view.elements() == 0) return;
  const int64_t capacity = DeviceReader::kMostBytes / size_of(view.dtype);
  const int64_t rows = std::max<int64_t>(1, capacity / view.cols);
  const int64_t cols = std::min(view.cols, capacity);  // < view.cols only if rows is 1
  for (int64_t row = 0; row < view.rows; row += rows) {
    const Tensor band = view.row_range(row, std::min(rows, view.rows - row));
    for (int64_t col = 0; col < view.cols; col += cols)
      blocks.push_back(band.columns(col, std::min(cols, view.cols - col)));
  }
}

void check_within(const TensorPart& part) {
  const int64_t elements = part.whole.tensor.elements();
  check(part.first >= 0 && part.count >= 0 && part.first <= elements - part.count,
        "range [{}, +{}) is outside tensor '{}' of {} elements", part.first, part.count,
        part.whole.name, elements);
}

}  // namespace

// Up to three bands: the rest of the first row, whole rows, and the start of the last row.
std::vector<Tensor> blocks_of(const TensorPart& part) {
  check_within(part);
  const Tensor& t = part.whole.tensor;
  std::vector<Tensor> blocks;
  int64_t first = part.first;
  const int64_t end = part.first + part.count;
  while (first < end) {
    const int64_t row = first / t.cols, col = first % t.cols;
    const int64_t whole_rows = col == 0 ? (end - first) / t.cols : 0;
    if (whole_rows > 0) {
      append_blocks(blocks, t.row_range(row, whole_rows));
      first += whole_rows * t.cols;
    } else {
      const int64_t count = std::min(t.cols - col, end - first);
      append_blocks(blocks, t.row_range(row, 1).columns(col, count));
      first += count;
    }
  }
  return blocks;
}

int64_t bytes_of(std::span<const TensorPart> parts) {
  int64_t bytes = 0;
  for (const TensorPart& part : parts) bytes += part.count * size_of(part.whole.tensor.dtype);
  return bytes;
}

PartList list_of(std::span<const TensorPart> parts) {
  PartList list;
  for (const TensorPart& part : parts) {
    check_within(part);
    const StoredTensorInfo whole = info_of(part.whole);
    if (part.is_whole()) {
      list.entries.push_back(whole);
    } else if (part.count > 0) {
      list.spans.push_back({whole.name, whole.shape, part.first, part.count});
      list.entries.push_back({key_of(list.spans.back()), whole.type, {part.count}});
    }
  }
  return list;
}

StoredTensors::StoredTensors(FileSystem& fs, std::string directory,
                             std::span<const CheckpointFile> files)
    : directory_(std::move(directory)) {
  for (const CheckpointFile& file : files) {
    files_.push_back(std::make_unique<SafetensorsReader>(fs, directory_ + "/" + file.name));
    add(*files_.back(), file.spans);
  }
  for (auto& [name, stored] : tensors_) check_complete(stored);
}

void StoredTensors::add(const SafetensorsReader& file, const std::vector<StoredSpan>& spans) {
  std::map<std::string, const StoredSpan*> by_key;
  for (const StoredSpan& span : spans) {
    const std::string key = key_of(span);
    const SafetensorsReader::Entry* entry = file.find(key);
    if (entry == nullptr || entry->shape != std::vector{span.count})
      throw error("{}: expected elements {} to {} of tensor '{}' as '{}' with shape [{}], found {}",
                  file.path(), span.first, span.first + span.count - 1, span.tensor, key,
                  span.count, entry == nullptr ? "nothing" : entry->description());
    if (!by_key.emplace(key, &span).second)
      throw error("{}: '{}' is listed twice", file.path(), key);
  }
  for (const SafetensorsReader::Entry& entry : file.tensors()) {
    const auto found = by_key.find(entry.name);
    if (found == by_key.end()) {
      add(entry, {0, elements_of(entry.shape), &file, &entry});
    } else {
      const StoredSpan& span = *found->second;
      add({span.tensor, entry.type, span.shape}, {span.first, span.count, &file, &entry});
    }
  }
}

void StoredTensors::add(const StoredTensorInfo& whole, const Piece& piece) {
  Stored& stored = tensors_.try_emplace(whole.name, Stored{whole, {}}).first->second;
  if (stored.info.type != whole.type || stored.info.shape != whole.shape)
    throw error("{}: tensor '{}' is {} here and {} in {}", piece.file->path(), whole.name,
                whole.description(), stored.info.description(), stored.pieces.front().file->path());
  stored.pieces.push_back(piece);
}

void StoredTensors::check_complete(Stored& stored) const {
  std::stable_sort(stored.pieces.begin(), stored.pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.first < b.first; });
  const auto missing = [&](int64_t first, int64_t last) {
    return error("{}: elements {} to {} of tensor '{}' ({}) are missing from its {}", directory_,
                 first, last, stored.info.name, stored.info.description(),
                 counted(std::ssize(files_), "file"));
  };
  int64_t end = 0;
  const Piece* before = nullptr;
  for (const Piece& piece : stored.pieces) {
    if (piece.first > end) throw missing(end, piece.first - 1);
    if (piece.first < end)
      throw error("{}: elements {} to {} of tensor '{}' are also in {}", piece.file->path(),
                  piece.first, std::min(end, piece.first + piece.count) - 1, stored.info.name,
                  before->file->path());
    end = piece.first + piece.count;
    before = &piece;
  }
  const int64_t elements = elements_of(stored.info.shape);
  if (end < elements) throw missing(end, elements - 1);
}

const StoredTensors::Stored& StoredTensors::at(const TensorPart& part) const {
  const StoredTensorInfo wanted = info_of(part.whole);
  const auto found = tensors_.find(wanted.name);
  if (found == tensors_.end())
    throw error("{} has no tensor '{}'; this run needs it as {}", directory_, wanted.name,
                wanted.description());
  const Stored& stored = found->second;
  if (stored.info.type != wanted.type || stored.info.shape != wanted.shape)
    throw error("{}: tensor '{}' is {}; this run needs {}", stored.pieces.front().file->path(),
                wanted.name, stored.info.description(), wanted.description());
  return stored;
}

void StoredTensors::read(const Stored& stored, int64_t first, std::span<std::byte> target) {
  const int64_t item = size_of(stored.info.type);
  auto piece = std::upper_bound(stored.pieces.begin(), stored.pieces.end(), first,
                                [](int64_t element, const Piece& p) { return element < p.first; });
  for (--piece; !target.empty(); ++piece) {
    const int64_t within = first - piece->first;
    const int64_t count =
        std::min(piece->count - within, static_cast<int64_t>(target.size()) / item);
    const auto bytes = static_cast<size_t>(count * item);
    piece->file->read(*piece->entry, within * item, target.first(bytes));
    target = target.subspan(bytes);
    first += count;
  }
}

}  // namespace mpt
