#include "parallel/run_failure.h"

#include <utility>

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

// What is not an Error keeps its type, which has an exit status of its own.
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
  for (const std::string& text : ranks.gather_texts(mine))
    if (!text.empty()) throw error("{}; {}", text, then);
}

}  // namespace mpt
