// What tests ask of the fake NCCL (include/nccl.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nccl.h>

namespace fake_nccl {

// What ranks called since the last reset(), once for all ranks: "ncclReduce", ...
[[nodiscard]] std::vector<std::string> calls();
[[nodiscard]] int64_t aborted();  // communicators
// What ncclCommGetAsyncError() reports of every communicator from now on.
void set_async_error(ncclResult_t error);
void reset();

}  // namespace fake_nccl
