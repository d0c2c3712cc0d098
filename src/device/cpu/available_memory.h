// Memory that this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mpt {

// Bytes available without swapping, as the kernel reports them, or what the process's control
// groups leave of them, as in a container or a Slurm job; all memory if the kernel reports nothing.
int64_t available_memory();

// What the control groups leave, the tightest of them; nothing if none has a limit. `groups`: the
// text of /proc/self/cgroup; `mount`: where both versions of control groups are mounted,
// /sys/fs/cgroup. Files in the page cache that are not in use do not count as taken.
std::optional<int64_t> memory_left_by_groups(std::string_view groups, const std::string& mount);

}  // namespace mpt
