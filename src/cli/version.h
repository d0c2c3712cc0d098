// What `mpretrain --version` prints.
#pragma once

#include <string>

namespace mpt {

// Of the build; defined in a file that cmake/MptBuildInfo.cmake writes.
struct BuildInfo {
  const char* commit;        // "0123456789ab", with "-dirty" if files differ from it; "unknown"
  const char* instructions;  // what the code was compiled for
  const char* compiler;
  const char* devices;
  const char* ranks;  // how many, and over what they exchange
  const char* libraries;
};
extern const BuildInfo kBuildInfo;

// "mpretrain X.Y.Z", then a line for each thing that a report of a fault should tell.
std::string version_text();

}  // namespace mpt
