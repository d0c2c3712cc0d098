#include "core/io/code_file.h"

#include <dlfcn.h>
#include <link.h>

namespace mpt {

std::string code_file() {
  static const char here = 0;
  Dl_info found;
  void* object = nullptr;
  if (dladdr1(&here, &found, &object, RTLD_DL_LINKMAP) == 0 || object == nullptr)
    return "/proc/self/exe";
  const std::string name = static_cast<const link_map*>(object)->l_name;
  return name.empty() ? "/proc/self/exe" : name;  // the executable has no name
}

}  // namespace mpt
