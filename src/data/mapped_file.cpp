#include "data/mapped_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "data/file_list.h"

namespace mpt {
namespace {

std::string last_failure() { return std::generic_category().message(errno); }

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  require_regular_file(path_);
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw error("{}: cannot be opened for reading: {}", path_, last_failure());
  struct stat status {};
  void* address = nullptr;
  if (::fstat(file, &status) == 0 && status.st_size > 0)
    address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
  const std::string failure = address == MAP_FAILED ? last_failure() : "";
  ::close(file);
  if (!failure.empty()) throw error("{}: cannot be mapped into memory: {}", path_, failure);
  if (address != nullptr)
    data_ = {static_cast<const std::byte*>(address), static_cast<size_t>(status.st_size)};
}

MappedFile::~MappedFile() {
  if (!data_.empty()) ::munmap(const_cast<std::byte*>(data_.data()), data_.size());
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  return *this;
}

}  // namespace mpt
