#include "support/fake_cuda/work_queue.h"

#include <algorithm>
#include <set>

namespace fake_cuda::detail {

bool WorkQueue::owes(cudaStream_t stream, bool blocking) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return orders(item, stream, blocking); });
}

WorkQueue::Fault WorkQueue::run_all(Pick pick, const Run& run) {
  while (!items_.empty())
    if (auto fault = run_item(picked(pick), run)) return fault;
  return {};
}

WorkQueue::Fault WorkQueue::settle(cudaStream_t stream, bool blocking, Pick pick, const Run& run) {
  for (;;) {
    const auto owed = std::find_if(items_.begin(), items_.end(), [&](const Item& item) {
      return orders(item, stream, blocking);
    });
    if (owed == items_.end()) return {};
    if (auto fault = run_item(pick == Pick::kFirst ? owed : picked(pick), run)) return fault;
  }
}

WorkQueue::Fault WorkQueue::reach(const std::shared_ptr<Mark>& mark, const Run& run) {
  if (mark->reached) return {};
  const auto item =
      std::find_if(items_.begin(), items_.end(), [&](const Item& x) { return x.reaches == mark; });
  if (item == items_.end()) return "a stream waits for what never comes";
  return run_item(item, run);
}

WorkQueue::Iterator WorkQueue::picked(Pick pick) {
  auto best = items_.begin();
  std::set<cudaStream_t> seen;
  bool legacy = false, blocking = false;  // seen so far
  for (auto item = items_.begin(); item != items_.end() && pick == Pick::kLast; ++item) {
    const bool is_legacy = item->stream == nullptr;
    const bool held =
        !seen.insert(item->stream).second || (is_legacy && blocking) || (item->blocking && legacy);
    legacy = legacy || is_legacy, blocking = blocking || item->blocking;
    if (!held && (item->after == nullptr || item->after->reached)) best = item;
  }
  return best;
}

// Runs an item after everything before it.
WorkQueue::Fault WorkQueue::run_item(Iterator item, const Run& run) {
  for (;;) {
    const auto earlier = std::find_if(items_.begin(), item, [&](const Item& x) {
      return orders(x, item->stream, item->blocking);
    });
    if (earlier == item) break;
    if (auto fault = run_item(earlier, run)) return fault;
  }
  if (item->after)
    if (auto fault = reach(item->after, run)) return fault;
  const Item mine = std::move(*item);
  items_.erase(item);
  if (mine.work)
    if (auto fault = run(mine.work)) return fault;
  if (mine.reaches) *mine.reaches = {.reached = true, .time = std::chrono::steady_clock::now()};
  return {};
}

}  // namespace fake_cuda::detail
