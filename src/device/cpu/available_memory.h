// Memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mpt {

// Bytes available without swapping, as reported by the kernel, or as much of them as the process's
// control groups leave, as in a container or a Slurm job; all memory if the kernel reports nothing.
int64_t available_memory();

// Memory left by the tightest control group; nullopt if none has a limit. `groups`: the text of
// /proc/self/cgroup; `mount`: where both versions of control groups are mounted, /sys/fs/cgroup.
// Unused files in the page cache do not count as taken.
std::optional<int64_t> memory_left_by_groups(std::string_view groups, const std::string& mount);

}  // namespace mpt
