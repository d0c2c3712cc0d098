// MPI as a process has it: begun once, ended in order or not at all; errors of its calls are exceptions.
#pragma once

#include <string>
#include <string_view>

#include <mpi.h>

#include "core/check.h"

namespace mpt {

// check_mpi(MPI_Barrier(comm), "MPI_Barrier");
void check_mpi(int status, std::string_view call);

class MpiLibrary {
 public:
  MpiLibrary();
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  [[nodiscard]] MPI_Comm ranks() const { return ranks_; }  // all, for our messages alone
  // Ends MPI on this rank. All ranks must be about to do so.
  void finish();

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
};

std::string mpi_library_name();  // "Open MPI 4.1.4"

}  // namespace mpt
