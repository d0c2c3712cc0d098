// An error that ends a run without harm to its state: of data, evaluation, samples, metrics or
// event files.
//
// The run stops at it as at a signal, saves the last finished step, and throws it then. Several
// ranks, of which one alone may fail, stop together: they exchange whether one has failed where
// they exchange signals.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "comm/communicator.h"

namespace mpt {

class RunFailure {
 public:
  // Runs `work`, which makes no collective call and changes nothing that a checkpoint holds. The
  // first exception of all calls is kept.
  void attempt(const std::function<void()>& work);
  void keep(std::exception_ptr failure);
  // Whether this rank has failed.
  [[nodiscard]] bool any() const { return failure_ != nullptr; }

  // Throws on all ranks if one has failed: what it was and what became of the run's state, `then`.
  // Collective.
  void rethrow(Communicator& ranks, const std::string& then) const;

 private:
  std::exception_ptr failure_;
};

}  // namespace mpt
