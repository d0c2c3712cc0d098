// File that appears under its name only once it is complete.
//
// Writes to `<path>.tmp`; commit() syncs it to the storage device and renames it. Without commit()
// (an exception, a kill) no file of that name appears and an existing one is unchanged; the
// destructor removes the temporary file. Follows symbolic links.
//
// Targets that cannot be replaced are written in place: a device, a pipe, a terminal, a descriptor,
// and a file that is a mount point, which loses its earlier content with the first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"

namespace mpt {

class OutputFile {
 public:
  // `fs` must outlive this object. Throws Error for a directory, and if the path is not writable.
  OutputFile(FileSystem& fs, std::string path);
  // Resumes a temporary file left by save(), after its first `kept` bytes.
  OutputFile(FileSystem& fs, std::string path, int64_t kept);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void append(std::span<const std::byte> bytes);
  // Replaces bytes appended earlier.
  void overwrite(int64_t offset, std::span<const std::byte> bytes);
  // Returns once the appended bytes are on the storage device. From then on the temporary file is
  // kept even without commit(), so that another OutputFile can resume it.
  void save();
  void commit();

  // Where the file is until it is complete.
  [[nodiscard]] static std::string temporary_of(const std::string& path) { return path + ".tmp"; }

 private:
  void flush();

  FileSystem& fs_;
  std::string path_;
  bool in_place_ = false;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null once committed
  bool saved_ = false;
  int64_t flushed_ = 0;  // bytes written to the file; the rest is in buffer_
  std::vector<std::byte> buffer_;
};

// Throws Error if the path is a nonempty file of a different kind, one that does not start with
// `beginning`. Ignores targets that are written in place. `what` names the kind in the message: "a
// page of this program".
void check_replaces_its_kind(FileSystem& fs, const std::string& path, std::string_view beginning,
                             std::string_view what);

}  // namespace mpt
