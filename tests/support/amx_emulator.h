// Runs code with AMX instructions on a processor that lacks them: catches the signal of each
// instruction and does what Intel's Software Developer's Manual specifies. LDTILECFG, TILERELEASE,
// TILEZERO, TILELOADD, TILESTORED and TDPBF16PS; anything else ends the process.
//
//   const AmxEmulator emulator;   // while it exists, in all threads
//   code_with_amx();
//   emulator.products();          // TDPBF16PS executed
#pragma once

#include <csignal>
#include <cstdint>

namespace mpt::test {

class AmxEmulator {
 public:
  AmxEmulator();
  ~AmxEmulator();
  AmxEmulator(const AmxEmulator&) = delete;
  AmxEmulator& operator=(const AmxEmulator&) = delete;

  [[nodiscard]] int64_t products() const;

 private:
  struct sigaction former_;
};

}  // namespace mpt::test
