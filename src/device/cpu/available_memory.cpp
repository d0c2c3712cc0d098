#include "device/cpu/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include <unistd.h>

namespace mpt {
namespace {

struct GroupFiles {
  const char *limit, *used, *unused_cache;  // the last: a key of memory.stat
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"},
    kVersion2{"memory.max", "memory.current", "inactive_file"};
constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 uses a number for it

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// nullopt for "max" and for missing text.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && value >= 0 ? std::optional(value) : std::nullopt;
}

// Reads the number from a line "key number".
std::optional<int64_t> number_of(const std::string& lines, std::string_view key) {
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return number_in(std::string_view(line).substr(key.size() + 1));
  return std::nullopt;
}

std::optional<int64_t> left_in(const std::string& group, const GroupFiles& files) {
  const std::optional<int64_t> limit = number_in(text_of(group + "/" + files.limit)),
                               used = number_in(text_of(group + "/" + files.used));
  if (!limit || !used || *limit >= kNoLimit) return std::nullopt;
  const int64_t cache = number_of(text_of(group + "/memory.stat"), files.unused_cache).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache));
}

std::optional<int64_t> least_of(std::optional<int64_t> a, std::optional<int64_t> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// Minimum over a group and its ancestors. In a container, its own group is at the top, whatever its
// path says.
std::optional<int64_t> left_on_path(const std::string& top, std::string path,
                                    const GroupFiles& files) {
  std::optional<int64_t> left = left_in(top, files);
  for (; path.size() > 1; path.resize(std::max<size_t>(path.rfind('/'), 1)))
    left = least_of(left, left_in(top + path, files));
  return left;
}

bool has_memory(std::string_view controllers) {
  const std::string all = "," + std::string(controllers) + ",";
  return all.find(",memory,") != std::string::npos;
}

}  // namespace

std::optional<int64_t> memory_left_by_groups(std::string_view groups, const std::string& mount) {
  std::optional<int64_t> left;
  std::istringstream stream{std::string(groups)};
  for (std::string line; std::getline(stream, line);) {  // "4:memory:/path", "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) left = least_of(left, left_on_path(mount, path, kVersion2));
    if (has_memory(controllers))
      left = least_of(left, left_on_path(mount + "/memory", path, kVersion1));
  }
  return left;
}

int64_t available_memory() {
  const std::optional<int64_t> kilobytes = [] {
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("MemAvailable:"))
        return number_in(line.substr(std::min(line.find_first_of("0123456789"), line.size())));
    return std::optional<int64_t>();
  }();
  const int64_t machine =
      kilobytes ? *kilobytes * 1024 : int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(
      machine,
      memory_left_by_groups(text_of("/proc/self/cgroup"), "/sys/fs/cgroup").value_or(machine));
}

}  // namespace mpt
