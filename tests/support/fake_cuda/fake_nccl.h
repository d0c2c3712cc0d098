// Test controls of the fake NCCL (include/nccl.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nccl.h>

namespace fake_nccl {

// Calls since the last reset(), once for all ranks: "ncclReduce", ...
[[nodiscard]] std::vector<std::string> calls();
[[nodiscard]] int64_t aborted();  // communicators
// Sets what ncclCommGetAsyncError() reports for every communicator.
void set_async_error(ncclResult_t error);
void reset();

}  // namespace fake_nccl
