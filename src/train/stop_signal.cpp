#include "train/stop_signal.h"

#include <csignal>

namespace mpt {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};
volatile std::sig_atomic_t received_signal = 0;

void on_signal(int signal) { received_signal = signal; }

}  // namespace

StopSignal::StopSignal() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

StopSignal::~StopSignal() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

int StopSignal::received() { return received_signal; }

}  // namespace mpt
