// Pending work of streams: what may run when, and what a wait causes to run.
//
// Work of a stream runs in order, after the marks it waits for. The legacy default stream and the
// blocking streams wait for one another; nothing else orders streams.
#pragma once

#include <list>
#include <memory>

#include "support/fake_cuda/runtime.h"

namespace fake_cuda::detail {

class WorkQueue {
 public:
  using Fault = std::optional<std::string>;
  using Run = std::function<Fault(const Work&)>;
  // Which of the unblocked work runs: the first or the last enqueued.
  enum class Pick : uint8_t { kFirst, kLast };

  void add(Item item) { items_.push_back(std::move(item)); }
  void clear() { items_.clear(); }
  // Whether work is pending that the stream's next work would wait for.
  [[nodiscard]] bool owes(cudaStream_t stream, bool blocking) const;

  // Run the work needed, and return the first fault.
  Fault run_all(Pick pick, const Run& run);
  Fault settle(cudaStream_t stream, bool blocking, Pick pick, const Run& run);
  Fault reach(const std::shared_ptr<Mark>& mark, const Run& run);
  Fault run_latest(const Run& run) { return run_item(std::prev(items_.end()), run); }

 private:
  using Iterator = std::list<Item>::iterator;

  static bool orders(const Item& earlier, cudaStream_t stream, bool blocking) {
    if (earlier.stream == stream) return true;
    return earlier.stream == nullptr ? blocking : stream == nullptr && earlier.blocking;
  }
  Iterator picked(Pick pick);
  Fault run_item(Iterator item, const Run& run);

  std::list<Item> items_;
};

}  // namespace fake_cuda::detail
