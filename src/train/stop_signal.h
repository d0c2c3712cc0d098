// SIGINT, SIGTERM and SIGUSR1 ask a run to stop, so that it can save. They are answered in words at once,
// from the handler.
//
// A second SIGINT or SIGTERM ends the process as it would have without all this. SIGUSR1 is what launchers
// send before their time is up, perhaps several times, and never ends anything.
#pragma once

#include <cstdint>

namespace mpt {

// What a run comes to after a signal: says where it stands now.
enum class StopPoint : uint8_t {
  kWithinFirstStep,  // of all: there is no state to save
  kWithinStep,       // which is dropped
  kAfterStep,
  kAfterEvaluation,
  kAfterSaving,
};

// Takes the signals while it lives, one object at a time.
class StopSignal {
 public:
  enum class Voice : uint8_t { kSpeaks, kSilent };  // one of several ranks speaks

  explicit StopSignal(Voice voice);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The number of the signal that came, 0 if none.
  [[nodiscard]] static int received();
  // Where a signal that comes from now on will stop the run.
  static void stops(StopPoint point);
  // From now on, and beyond this object, SIGTERM is ignored: what is left to do is to end. Launchers send it
  // to the other ranks as soon as one has ended with a status that is not 0, and would report that instead.
  static void ignore_termination();
};

}  // namespace mpt
