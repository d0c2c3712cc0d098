#include "ranks/run_failure.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "core/check.h"

namespace mpt {

void RunFailure::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception&) {
    keep(std::current_exception());
  }
}

void RunFailure::keep(std::exception_ptr failure) {
  if (!failure_) failure_ = std::move(failure);
}

bool RunFailure::share(Communicator& ranks) {
  const std::vector<int64_t> failed = ranks.gather_numbers(any() ? 1 : 0);
  const bool one = std::ranges::any_of(failed, [](int64_t rank) { return rank != 0; });
  stops_ |= one;
  return one;
}

// Anything but Error keeps its type, which has its own exit status.
void RunFailure::rethrow(Communicator& ranks, const std::string& then) const {
  std::string mine;
  try {
    if (failure_) std::rethrow_exception(failure_);
  } catch (const Error& failure) {
    mine = ranks.is_single() ? failure.what()
                             : fmt::format("rank {}: {}", ranks.rank(), failure.what());
  } catch (const std::exception&) {
    spdlog::error("stopped by an error; {}", then);
    throw;
  }
  std::vector<std::string> texts = ranks.gather_texts(mine);
  for (std::string& text : texts)
    if (!text.empty()) text += "; " + then;
  ranks.throw_first(texts);
}

}  // namespace mpt
