#include "train/stop_signal.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <span>
#include <string_view>

#include <unistd.h>

namespace mpt {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP};

// Indexed by StopPoint.
constexpr std::array<std::string_view, 6> kAnswers{
    "stopping; no step has finished, so there is nothing to save",
    "stopping; dropping the unfinished step and saving the last finished one",
    "stopping after this step and saving it",
    "stopping; leaving this evaluation to the resumed run, and saving its step",
    "stopping after this evaluation and saving its step",
    "stopping once the checkpoint is saved",
};

volatile std::sig_atomic_t received_signal = 0;
std::atomic<bool> asked_to_end = false;  // by SIGINT or SIGTERM
std::atomic<StopPoint> stop_point = StopPoint::kAfterStep;
std::atomic<bool> speaks = false;
std::atomic<bool> on_terminal = false;
static_assert(std::atomic<StopPoint>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

// Everything from here to on_signal() is async-signal-safe: no memory, no locks, one write().
void append(std::array<char, 256>& line, size_t& size, std::string_view text) {
  const size_t count = std::min(text.size(), line.size() - size);
  std::copy_n(text.data(), count, line.data() + size);
  size += count;
}

void answer() {
  std::array<char, 256> line;  // NOLINT: only the filled part is written
  size_t size = 0;
  if (on_terminal) append(line, size, "\n");  // after a progress bar and the terminal's ^C
  append(line, size, "mpretrain: ");
  append(line, size, kAnswers[static_cast<size_t>(stop_point.load())]);
  append(line, size, "; a second Ctrl-C or SIGTERM ends the run at once\n");
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), size);
}

// Ends the process by `signal`'s default action, on this thread, as soon as the handler returns.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Two threads may run this at once, with different signals.
void on_signal(int signal) {
  const int error = errno;
  const bool again = received_signal != 0, may_end = signal == SIGINT || signal == SIGTERM;
  received_signal = signal;
  if (may_end && asked_to_end.exchange(true))
    end_by(signal);
  else if (speaks && !(again && !may_end))
    answer();
  errno = error;
}

// nohup leaves SIGHUP ignored.
bool is_ignored(int signal) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

}  // namespace

StopSignal::StopSignal(Voice voice) {
  received_signal = 0;
  asked_to_end = false;
  speaks = voice == Voice::kSpeaks;
  on_terminal = ::isatty(STDERR_FILENO) != 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  for (const int signal : kSignals)
    if (signal != SIGHUP || !is_ignored(SIGHUP)) sigaction(signal, &action, nullptr);
}

StopSignal::~StopSignal() {
  for (const int signal : kSignals) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == on_signal) std::signal(signal, SIG_DFL);
  }
}

int StopSignal::received() { return received_signal; }
void StopSignal::stops(StopPoint point) { stop_point = point; }
void StopSignal::ignore_termination() { std::signal(SIGTERM, SIG_IGN); }

namespace {
constexpr double kSecondsBetween = 0.1;
}

void StopPoints::begin_step(double seconds) {
  if (seconds > 0 && passed_ > 0)
    every_ =
        std::max<int64_t>(1, std::llround(std::ceil(double(passed_) * kSecondsBetween / seconds)));
  within_step_ = true;
  passed_ = 0;
  asked_.reset();  // completed before the last step ended
}

void StopPoints::before_use(int64_t group) {
  inner_.before_use(group);
  leave_alone();
}

void StopPoints::gradients_added(int64_t group) {
  inner_.gradients_added(group);
  leave_alone();
  if (within_step_ && ++passed_ % every_ == 0 && !ranks_.is_single()) ask_others();
}

void StopPoints::reduce_amax(const Tensor& values) { inner_.reduce_amax(values); }

// A single rank need not agree with others, so it can leave at any point.
void StopPoints::leave_alone() {
  if (within_step_ && ranks_.is_single() && StopSignal::received() != 0) throw StepLeft();
}

void StopPoints::ask_others() {
  if (asked_) {
    ranks_.wait(*asked_);
    if (std::ranges::any_of(all_, [](int64_t signal) { return signal != 0; })) throw StepLeft();
  }
  mine_ = StopSignal::received();
  all_.resize(size_t(ranks_.size()));
  asked_ = ranks_.run([this](Transport& transport) {
    transport.gather_host(std::as_bytes(std::span(&mine_, 1)),
                          std::as_writable_bytes(std::span(all_)));
  });
}

}  // namespace mpt
