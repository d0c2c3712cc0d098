# Decides whether ranks on the CPU are built (MPT_WITH_MPI): where an MPI is found.

set(MPT_WITH_MPI OFF)
if(NOT MPT_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)  # its C interface alone
  find_package(MPI COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(MPT_WITH_MPI ON)
  elseif(MPT_MPI STREQUAL "ON")
    message(FATAL_ERROR "MPT_MPI=ON, but no MPI was found. Install libopenmpi-dev and openmpi-bin, or use MPT_MPI=AUTO.")
  endif()
endif()
message(STATUS "MPI: ${MPT_WITH_MPI}")

function(mpt_mpi_libraries target)
  if(MPT_WITH_MPI)
    target_compile_definitions(${target} PRIVATE MPT_WITH_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)
  endif()
endfunction()
