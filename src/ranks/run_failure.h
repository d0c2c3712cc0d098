// Errors that end a run without corrupting its state (data, evaluation, samples, metrics or event
// files), and whether the run stops because of one or of a signal.
//
// The run saves the last finished step and then throws the error. Ranks stop together even if only
// one fails: they exchange failures where they exchange signals.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "ranks/communicator.h"

namespace mpt {

class RunFailure {
 public:
  // Runs `work`, which must make no collective call and change nothing that a checkpoint holds.
  // Keeps the first exception of all calls.
  void attempt(const std::function<void()>& work);
  void keep(std::exception_ptr failure);
  // Whether this rank has failed.
  [[nodiscard]] bool any() const { return failure_ != nullptr; }

  // Stops the run: all ranks know that one has received a signal or failed.
  void stop() { stops_ = true; }
  // With several ranks, a local failure counts only once it has been shared.
  [[nodiscard]] bool stops(const Communicator& ranks) const {
    return stops_ || (ranks.is_single() && any());
  }
  // Stops all ranks if one has failed, and returns whether one has. Collective.
  bool share(Communicator& ranks);

  // Throws on all ranks if one has failed, reporting the failure and what became of the run's state
  // (`then`). Collective.
  void rethrow(Communicator& ranks, const std::string& then) const;

 private:
  std::exception_ptr failure_;
  bool stops_ = false;
};

}  // namespace mpt
