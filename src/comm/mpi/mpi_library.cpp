#include "comm/mpi/mpi_library.h"

#include <fmt/format.h>

namespace mpt {

void check_mpi(int status, std::string_view call) {
  if (status == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (MPI_Error_string(status, text.data(), &length) != MPI_SUCCESS) length = 0;
  text.resize(size_t(length));
  throw error("{} failed: {}", call, text);
}

MpiLibrary::MpiLibrary() {
  int begun = 0;
  check_mpi(MPI_Initialized(&begun), "MPI_Initialized");
  check(begun == 0, "MPI is begun twice in this process");
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    throw error(
        "{} was built for programs with one thread (it offers level {}, MPI_THREAD_SERIALIZED is {}): "
        "use one that was built with threads",
        mpi_library_name(), provided, int(MPI_THREAD_SERIALIZED));
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

// Without finish() MPI is not ended: that would wait for ranks that may never come.
MpiLibrary::~MpiLibrary() = default;

void MpiLibrary::finish() {
  check_mpi(MPI_Comm_free(&ranks_), "MPI_Comm_free");
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

std::string mpi_library_name() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  text.resize(size_t(length));
  text.resize(std::min(text.find_first_of(",\n"), text.size()));
  if (const size_t version = text.find(" v"); version != std::string::npos) text.erase(version + 1, 1);
  return text;
}

}  // namespace mpt
