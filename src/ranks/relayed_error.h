// Errors of which one rank's message is enough.
#pragma once

#include "core/check.h"

namespace mpt {

// Another rank failed, told why, and reports it: this one ends with it.
class RelayedError : public Error {
 public:
  using Error::Error;
};

// The log has the message already: the program only ends with the exit status.
class ReportedError : public Error {
 public:
  using Error::Error;
};

}  // namespace mpt
