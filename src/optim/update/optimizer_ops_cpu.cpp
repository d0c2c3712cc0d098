// OptimizerOps on the CPU.
#include "device/cpu/cpu_exec.h"
#include "optim/update/optimizer_ops_on.h"

namespace mpt {

static_assert(Rules::kSize == MPT_RULE_HEADERS, "a header in rules/ is not in rule_list.h");

int64_t square_sums(int64_t rows, int64_t cols) {
  return (BlockGrid{rows, cols}.blocks() + kBlocksPerTile - 1) / kBlocksPerTile;
}
int64_t sums_of_tiles(int64_t tiles) {
  return (tiles + SumOfTiles::kTiles - 1) / SumOfTiles::kTiles;
}

template <>
std::unique_ptr<OptimizerOps> make_cpu_ops(const OptimizerOps::Options&) {
  return std::make_unique<OptimizerOpsOn<CpuExec>>(CpuExec{});
}

}  // namespace mpt
