// SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and SIGHUP ask a run to save and stop. The handler
// prints an answer at once.
//
// A second SIGINT or SIGTERM ends the process by the default action. SIGUSR1 and SIGUSR2, which
// launchers and schedulers send (perhaps repeatedly) before a time limit, SIGXCPU, which the kernel
// sends every second beyond a limit on processor time, and SIGHUP, sent when a terminal closes,
// never end the process. An ignored SIGHUP, as under nohup, stays ignored.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "model/gradient_hooks.h"
#include "ranks/communicator.h"

namespace mpt {

// Where the run will stop after a signal; selects the printed answer.
enum class StopPoint : uint8_t {
  kWithinFirstStep,  // the first step: there is no state to save
  kWithinStep,       // the step is dropped
  kAfterStep,
  kWithinEvaluation,  // a resumed run runs the evaluation
  kAfterEvaluation,
  kAfterSaving,
};

// Handles the signals during its lifetime. At most one object may exist at a time.
class StopSignal {
 public:
  enum class Voice : uint8_t { kSpeaks, kSilent };  // one rank speaks

  explicit StopSignal(Voice voice);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Returns the number of the received signal, 0 if none.
  [[nodiscard]] static int received();
  // Sets where a signal received from now on will stop the run.
  static void stops(StopPoint point);
  // Ignores SIGTERM from now on, even after this object is gone. For a run about to exit: when one
  // rank exits with nonzero status, launchers send SIGTERM to the others and would report that
  // instead.
  static void ignore_termination();
};

// Thrown at a stop point to abandon the step; never outside a step.
struct StepLeft : std::exception {};

// Points at which a signal can abandon a training step: between layers, in forward and backward,
// and between loss chunks.
//
// A single rank checks for a signal at each point. Several ranks must leave at the same point,
// after the same collective calls. They exchange signals at points of backward, which all ranks
// reach in the same order, and read the result at the next exchange, so a rank that lags by less
// than one exchange delays nobody. In slow steps ranks exchange about ten times a second.
class StopPoints final : public GradientHooks {
 public:
  // `inner` receives every call first. Both must outlive this object.
  StopPoints(Communicator& ranks, GradientHooks& inner) : ranks_(ranks), inner_(inner) {}

  // Stop points are active between these two calls. `seconds`: duration of the last step, the same
  // on all ranks; 0 if there was none.
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
  int64_t passed_ = 0;  // points of backward passed in this step, or in the last
  int64_t every_ = 1;   // ranks exchange signals once every this many points
  std::optional<Communicator::Event> asked_;
  int64_t mine_ = 0;          // this rank's signal, 0 if none
  std::vector<int64_t> all_;  // all ranks' signals
};

}  // namespace mpt
