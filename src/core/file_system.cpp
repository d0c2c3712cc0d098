// Operations that any FileSystem has, made of its primitive ones.
#include "core/file_system.h"

#include <algorithm>
#include <filesystem>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/hash.h"

namespace mpt {

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(without_slashes(path)).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string FileSystem::read_file(const std::string& path, int64_t limit) {
  const auto file = open_read(path);
  if (file->size() > limit) {
    throw error("{}: has {} bytes, more than the {} accepted", path, file->size(), limit);
  }
  std::string content(static_cast<size_t>(file->size()), '\0');
  file->read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void FileSystem::create_directories(const std::string& path) {
  const FileKind found = kind(path);
  if (found == FileKind::kDirectory) return;
  if (found != FileKind::kMissing) throw error("{}: exists and is not a directory", path);
  const std::string parent = parent_directory(path);
  create_directories(parent);
  create_directory(path);
  sync_directory(parent);
}

void FileSystem::remove_tree(const std::string& path) {
  if (is_link(path)) return remove_file(path);
  const FileKind found = kind(path);
  if (found == FileKind::kMissing) return;
  if (found != FileKind::kDirectory) return remove_file(path);
  for (const std::string& name : list_directory(path)) remove_tree(path + "/" + name);
  remove_directory(path);
}

void remove_quietly(FileSystem& fs, const std::string& path) {
  try {
    fs.remove_tree(path);
  } catch (const Error& failure) {
    spdlog::warn("{}: left behind: {}", path, failure.what());
  }
}

std::string hash_file(FileSystem& fs, const std::string& path, const std::function<void(int64_t)>& advance) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const auto file = fs.open_read(path);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kPiece, file->size())));
  Hasher hasher;
  for (int64_t offset = 0; offset < file->size(); offset += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, file->size() - offset));
    const std::span piece = std::span(buffer).first(count);
    file->read(offset, piece);
    hasher.update(piece);
    if (advance) advance(static_cast<int64_t>(count));
  }
  return hasher.hex();
}

}  // namespace mpt
