// SIGINT, SIGTERM and SIGUSR1 ask a run to stop, so that it can save. They are answered in words at once,
// from the handler.
//
// A second SIGINT or SIGTERM ends the process as it would have without all this. SIGUSR1 is what launchers
// send before their time is up, perhaps several times, and never ends anything.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "model/gradient_hooks.h"

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

// Where a training step can be left unfinished when a signal asks a run to stop: between the layers of its
// micro-batches, forward and backward, and between the chunks of the loss.
//
// A rank alone looks at each of these points whether a signal came. Several ranks leave a step at the same
// point, so that they have made the same collective calls: at the points of backward, which all ranks come to
// in the same order, each tells the others whether a signal came to it, and reads at the next such point what
// they told. So nobody waits for a rank that is less than a point behind, and at steps that take long there
// are ten points a second.

// Thrown by a point at which the step is left; never outside of one.
struct StepLeft : std::exception {};

class StopPoints final : public GradientHooks {
 public:
  // `inner` is told everything first; both outlive this.
  StopPoints(Communicator& ranks, GradientHooks& inner) : ranks_(ranks), inner_(inner) {}

  // Points count between these two. `seconds` is what the last step took, the same number on all ranks; 0
  // where there was none.
  void begin_step(double seconds);
  void end_step() { within_step_ = false; }

  void before_use(int64_t group) override;
  void gradients_added(int64_t group) override;
  void reduce_amax(const Tensor& values) override;

 private:
  void leave_alone();
  void ask_others();

  Communicator& ranks_;
  GradientHooks& inner_;
  bool within_step_ = false;
  int64_t passed_ = 0;  // points of backward in this step, or in the last
  int64_t every_ = 1;   // of them at which ranks tell each other
  std::optional<Communicator::Event> asked_;
  int64_t mine_ = 0;          // the signal that came, 0 if none
  std::vector<int64_t> all_;  // those of the ranks
};

}  // namespace mpt
