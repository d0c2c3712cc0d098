// A file system that fails at a chosen operation, and one that loses power, dropping unsynced data.
//
// Every call that changes something counts as one mutation, from 1. The chosen one throws Error,
// with
//   kError        no effect; later calls work                      (transient fault, full disk)
//   kShortWrite   an append writes half of its bytes; later calls work
//   kStop         no effect, and every later call fails            (the process was killed)
//   kStopShort    like kStop, but an append writes half its bytes  (killed during a write)
// Thread-safe; with several threads, any of them may make the chosen mutation. Syncs are only
// recorded, so a test may make thousands. drop_unsynced() changes the directory to a state that a
// power cut may leave.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/enum_names.h"
#include "core/io/file_system.h"

namespace mpt::test {

enum class Fault : uint8_t { kNone, kError, kShortWrite, kStop, kStopShort };
}  // namespace mpt::test

template <>
struct mpt::EnumNames<mpt::test::Fault> {
  static constexpr std::array<std::string_view, 5> kNames{"none", "error", "short_write", "stop",
                                                          "stop_short"};
};

namespace mpt::test {

// Whether renames in unsynced directories survive a power cut; both are possible.
enum class UnsyncedRenames : uint8_t { kKept, kUndone };

class FaultFileSystem final : public FileSystem {
 public:
  explicit FaultFileSystem(FileSystem& base) : base_(base) {}

  // Fails at the n-th mutation from now.
  void fail_at(int64_t n, Fault fault) {
    const std::lock_guard lock(mutex_);
    mutations_ = 0;
    fail_at_ = n;
    fault_ = fault;
    stopped_ = false;
  }
  void work() { fail_at(0, Fault::kNone); }
  [[nodiscard]] int64_t mutations() const {
    const std::lock_guard lock(mutex_);
    return mutations_;
  }
  [[nodiscard]] bool broke() const {
    const std::lock_guard lock(mutex_);
    return fail_at_ > 0 && mutations_ >= fail_at_;
  }
  // Called before a file is synced, in the syncing thread.
  void before_sync(std::function<void(const std::string& path)> call) {
    before_sync_ = std::move(call);
  }

  // Called before each non-modifying access to files and directories, in the accessing thread.
  void before_look(std::function<void()> call) { before_look_ = std::move(call); }

  // Called before a directory is removed, in the removing thread; may throw Error.
  void before_removal(std::function<void(const std::string& path)> call) {
    before_removal_ = std::move(call);
  }

  // Removes entries not synced in their directory, and truncates files to their synced bytes.
  void drop_unsynced(UnsyncedRenames renames) {
    const std::lock_guard lock(mutex_);
    for (auto rename = renames_.rbegin(); rename != renames_.rend(); ++rename) {
      if (renames == UnsyncedRenames::kUndone)
        undo(*rename);
      else
        entries_[rename->to].listed = true;
    }
    for (const auto& [path, entry] : entries_) {
      if (!base_.exists(path)) continue;
      if (!entry.listed)
        base_.remove_tree(path);
      else if (entry.synced < entry.size)
        base_.truncate(path, entry.synced);
    }
    entries_.clear();
    renames_.clear();
  }

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    mutate();
    const bool existed = base_.exists(path);
    auto file = base_.create(path);
    entries_[path] = {.listed = existed, .size = 0, .synced = 0};
    return std::make_unique<File>(*this, std::move(file), path);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return open(path, &FileSystem::open_append);
  }
  std::unique_ptr<WritableFile> open_existing(const std::string& path) override {
    return open(path, &FileSystem::open_existing);
  }
  std::unique_ptr<WritableFile> open_stream(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    mutate();
    return std::make_unique<File>(*this, base_.open_stream(path), path);
  }
  std::unique_ptr<ReadableFile> open_read(const std::string& path) override {
    if (before_look_) before_look_();
    const std::lock_guard lock(mutex_);
    observe();
    return base_.open_read(path);
  }
  void truncate(const std::string& path, int64_t size) override {
    const std::lock_guard lock(mutex_);
    mutate();
    base_.truncate(path, size);
    if (const auto entry = entries_.find(path); entry != entries_.end()) entry->second.size = size;
  }
  FileKind kind(const std::string& path) override {
    if (before_look_) before_look_();
    const std::lock_guard lock(mutex_);
    observe();
    return base_.kind(path);
  }
  bool is_link(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    observe();
    return base_.is_link(path);
  }
  std::vector<std::string> list_directory(const std::string& path) override {
    if (before_look_) before_look_();
    const std::lock_guard lock(mutex_);
    observe();
    return base_.list_directory(path);
  }
  void create_directory(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    mutate();
    base_.create_directory(path);
    entries_[path] = {.listed = false, .size = 0, .synced = 0};
  }
  void remove_file(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    mutate();
    base_.remove_file(path);
    entries_.erase(path);
  }
  void remove_directory(const std::string& path) override {
    if (before_removal_) before_removal_(path);
    const std::lock_guard lock(mutex_);
    mutate();
    base_.remove_directory(path);
    entries_.erase(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(mutex_);
    mutate();
    Rename record{from, to, std::nullopt};
    if (base_.kind(to) == FileKind::kRegular) record.replaced = base_.read_file(to);
    base_.rename(from, to);
    move_entries(from, to);
    renames_.push_back(record);
  }
  void sync_directory(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    mutate();
    if (!base_.is_directory(path)) throw error("{}: not a directory to sync", path);
    for (auto& [name, entry] : entries_) entry.listed |= parent_directory(name) == path;
    std::erase_if(renames_,
                  [&](const Rename& rename) { return parent_directory(rename.to) == path; });
  }

 private:
  std::unique_ptr<WritableFile> open(
      const std::string& path,
      std::unique_ptr<WritableFile> (FileSystem::*opened)(const std::string&)) {
    const std::lock_guard lock(mutex_);
    mutate();
    const bool existed = base_.exists(path);
    auto file = (base_.*opened)(path);
    const int64_t size = base_.file_size(path);
    entries_.try_emplace(path, Entry{.listed = existed, .size = size, .synced = size});
    return std::make_unique<File>(*this, std::move(file), path);
  }

  struct Entry {
    bool listed = false;  // its directory was synced since it was created
    int64_t size = 0;
    int64_t synced = 0;
  };
  struct Rename {
    std::string from, to;
    std::optional<std::string> replaced;  // contents of the replaced file
  };

  class File final : public WritableFile {
   public:
    File(FaultFileSystem& owner, std::unique_ptr<WritableFile> file, std::string path)
        : owner_(owner), file_(std::move(file)), path_(std::move(path)) {}
    void append(std::span<const std::byte> bytes) override {
      const std::lock_guard lock(owner_.mutex_);
      owner_.observe();
      const bool half = owner_.fault_ == Fault::kShortWrite || owner_.fault_ == Fault::kStopShort;
      if (half && owner_.mutations_ + 1 == owner_.fail_at_) write(bytes.first(bytes.size() / 2));
      owner_.mutate();
      write(bytes);
    }
    void overwrite(int64_t offset, std::span<const std::byte> bytes) override {
      const std::lock_guard lock(owner_.mutex_);
      owner_.mutate();
      file_->overwrite(offset, bytes);
    }
    void sync() override {
      if (owner_.before_sync_) owner_.before_sync_(path_);
      const std::lock_guard lock(owner_.mutex_);
      owner_.mutate();
      Entry& entry = owner_.entries_[path_];
      entry.synced = entry.size;
    }
    void close() override {
      const std::lock_guard lock(owner_.mutex_);
      owner_.mutate();
      file_->close();
    }

   private:
    void write(std::span<const std::byte> bytes) {
      file_->append(bytes);
      owner_.entries_[path_].size += static_cast<int64_t>(bytes.size());
    }
    FaultFileSystem& owner_;
    std::unique_ptr<WritableFile> file_;
    std::string path_;
  };

  void observe() const {
    if (stopped_) throw error("fault file system: stopped");
  }
  void mutate() {
    observe();
    if (++mutations_ != fail_at_ || fault_ == Fault::kNone) return;
    stopped_ = fault_ == Fault::kStop || fault_ == Fault::kStopShort;
    throw error("fault file system: operation {} fails", mutations_);
  }
  void undo(const Rename& rename) {
    if (!base_.exists(rename.to)) return;
    base_.rename(rename.to, rename.from);
    move_entries(rename.to, rename.from);
    if (rename.replaced) base_.create(rename.to)->append(bytes_of(*rename.replaced));
  }
  // Renaming a directory moves its contents.
  void move_entries(const std::string& from, const std::string& to) {
    std::map<std::string, Entry> moved;
    for (const auto& [path, entry] : entries_) {
      const bool inside = path == from || path.starts_with(from + "/");
      moved[inside ? to + path.substr(from.size()) : path] = entry;
    }
    entries_ = std::move(moved);
  }

  FileSystem& base_;
  std::function<void(const std::string&)> before_sync_, before_removal_;
  std::function<void()> before_look_;
  mutable std::mutex mutex_;
  int64_t mutations_ = 0;
  int64_t fail_at_ = 0;
  Fault fault_ = Fault::kNone;
  bool stopped_ = false;
  std::map<std::string, Entry> entries_;
  std::vector<Rename> renames_;
};

}  // namespace mpt::test
