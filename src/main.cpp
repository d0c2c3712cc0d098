// mpretrain: pretrains LLaMA models in low precision.
#include "cli/program.h"
#include "cli/waiting_threads.h"

int main(int argc, char** argv) {
  mpt::hold_standard_descriptors();
  mpt::let_waiting_threads_sleep(argv);
  return mpt::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc});
}
