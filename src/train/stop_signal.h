// SIGINT, SIGTERM and SIGUSR1 ask a run to stop after its current step, so that it can save; a second one
// kills it.
#pragma once

namespace mpt {

// Takes the signals while it lives, one object at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The number of the signal that came, 0 if none.
  [[nodiscard]] static int received();
};

}  // namespace mpt
