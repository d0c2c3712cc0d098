#include "core/io/run_paths.h"

#include <filesystem>
#include <system_error>

#include "core/io/file_system.h"

namespace mpt {

std::string run_of_checkpoint(const std::string& checkpoint) {
  namespace stdfs = std::filesystem;
  const std::string path = without_slashes(checkpoint);
  std::error_code failure;
  for (const stdfs::path& place :
       {stdfs::absolute(path, failure).lexically_normal(), stdfs::weakly_canonical(path, failure)})
    if (place.parent_path().filename() == kCheckpoints)
      return place.parent_path().parent_path().string();
  return "";
}

}  // namespace mpt
