// Finds processes of this machine by their command line.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace mpt::test {

// The arguments, each terminated by a zero byte; empty if the process has ended.
inline std::string command_line_of(const std::filesystem::path& process) {
  const int file = ::open((process / "cmdline").c_str(), O_RDONLY | O_CLOEXEC);
  std::string line(1 << 16, '\0');
  const ssize_t count = file < 0 ? 0 : ::read(file, line.data(), line.size());
  if (file >= 0) ::close(file);
  line.resize(size_t(std::max<ssize_t>(count, 0)));
  return line;
}

// Processes with the argument `argument` whose program path ends with `program`.
inline std::vector<pid_t> processes_that_say(const std::string& argument,
                                             const std::string& program) {
  const std::string wanted = '\0' + argument + '\0';
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = command_line_of(entry.path());
    if (line.find(wanted) == std::string::npos) continue;
    if (line.substr(0, line.find('\0')).ends_with(program)) found.push_back(pid_t(std::stol(name)));
  }
  return found;
}

}  // namespace mpt::test
