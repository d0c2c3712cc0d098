#include "cli/version.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/io/code_file.h"
#include "device/cpu/cpu_kernels.h"

namespace mpt {
namespace {

// Returns the path of the file as seen by a user.
std::string loaded_from() {
  std::error_code failure;
  const std::filesystem::path found = std::filesystem::canonical(code_file(), failure);
  return failure ? code_file() : found.string();
}

}  // namespace

std::string version_text() {
  std::string text = "mpretrain " MPT_VERSION;
  const auto row = [&text](const char* name, const std::string& value) {
    text += fmt::format("\n{:<14}{}", name, value);
  };
  row("commit", kBuildInfo.commit);
  row("compiled for", fmt::format("{}: {}", kBuildInfo.instructions, cpu_gemm_description()));
  row("compiled by", kBuildInfo.compiler);
  row("loaded from", loaded_from());
  row("devices", kBuildInfo.devices);
  row("ranks", kBuildInfo.ranks);
  row("libraries", kBuildInfo.libraries);
  return text;
}

}  // namespace mpt
