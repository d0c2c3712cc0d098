// Output of `mpretrain --version`.
#pragma once

#include <string>

namespace mpt {

// Data of the build; defined in a file written by cmake/MptBuildInfo.cmake.
struct BuildInfo {
  const char* commit;        // "0123456789ab", with "-dirty" if files differ from it; "unknown"
  const char* instructions;  // the instruction set the code was compiled for
  const char* compiler;
  const char* devices;
  const char* ranks;  // how many, and the transport
  const char* libraries;
};
extern const BuildInfo kBuildInfo;

// Returns "mpretrain X.Y.Z", then a line for each item that a bug report should contain.
std::string version_text();

}  // namespace mpt
