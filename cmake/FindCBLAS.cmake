# Finds an OpenMP build of a CBLAS: BLIS or OpenBLAS, by MPT_BLAS. Defines CBLAS::CBLAS and CBLAS_NAME.
#
# AUTO prefers OpenBLAS where it chooses its AVX-512 kernels on the machine that the build is for (MPT_NATIVE), and BLIS
# everywhere else: BLIS 0.9 chooses AVX2 kernels for most such processors; and sums of OpenBLAS's AVX2 kernels depend on
# the number of threads (src/device/cpu/cblas.cpp).
#
# A pthread build beside the program's own OpenMP loops keeps two spinning thread pools and costs up to four
# times the run time, so pthread builds are never taken: only the -openmp directories of Debian and Ubuntu, and,
# elsewhere, a library named by CBLAS_LIBRARY and CBLAS_INCLUDE_DIR.

include(CheckCXXSourceRuns)

function(_cblas_try name library header suffix)
  if(CBLAS_NAME)
    return()
  endif()
  find_path(CBLAS_${name}_INCLUDE_DIR ${header} PATH_SUFFIXES ${suffix} ${CMAKE_LIBRARY_ARCHITECTURE}/${suffix})
  find_library(CBLAS_${name}_LIBRARY ${library} PATH_SUFFIXES ${suffix} NO_CMAKE_SYSTEM_PATH
               PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/${suffix} /usr/lib/${suffix} NO_DEFAULT_PATH)
  mark_as_advanced(CBLAS_${name}_INCLUDE_DIR CBLAS_${name}_LIBRARY)
  if(CBLAS_${name}_INCLUDE_DIR AND CBLAS_${name}_LIBRARY)
    set(CBLAS_NAME ${name} PARENT_SCOPE)
    set(CBLAS_INCLUDE_DIR ${CBLAS_${name}_INCLUDE_DIR} PARENT_SCOPE)
    set(CBLAS_LIBRARY ${CBLAS_${name}_LIBRARY} PARENT_SCOPE)
  endif()
endfunction()

# MPT_OPENBLAS_IS_WIDE: whether it is there and chooses AVX-512 kernels here.
function(_cblas_openblas_is_wide)
  _cblas_try(OpenBLAS openblas openblas_config.h openblas-openmp)
  if(CBLAS_NAME AND MPT_NATIVE AND NOT CMAKE_CROSSCOMPILING)
    set(CMAKE_REQUIRED_LIBRARIES ${CBLAS_LIBRARY})
    check_cxx_source_runs("#include <cstring>
      extern \"C\" char* openblas_get_corename(void);
      int main() { return strcmp(openblas_get_corename(), \"SkylakeX\"); }" MPT_OPENBLAS_IS_WIDE)
  endif()
endfunction()

if(NOT MPT_BLAS MATCHES "^(AUTO|BLIS|OpenBLAS)$")
  message(FATAL_ERROR "MPT_BLAS=${MPT_BLAS}: expected AUTO, BLIS or OpenBLAS")
endif()
if(CBLAS_LIBRARY AND CBLAS_INCLUDE_DIR)
  if(NOT MPT_BLAS STREQUAL "AUTO")
    set(CBLAS_NAME ${MPT_BLAS})
  elseif(CBLAS_LIBRARY MATCHES "openblas")
    set(CBLAS_NAME OpenBLAS)
  else()
    set(CBLAS_NAME BLIS)
  endif()
else()
  _cblas_openblas_is_wide()
  if(NOT MPT_BLAS STREQUAL "AUTO")
    set(_cblas_candidates ${MPT_BLAS})
  elseif(MPT_OPENBLAS_IS_WIDE)
    set(_cblas_candidates OpenBLAS BLIS)
  else()
    set(_cblas_candidates BLIS OpenBLAS)
  endif()
  foreach(_cblas_candidate IN LISTS _cblas_candidates)
    string(TOLOWER ${_cblas_candidate} _cblas_library)
    set(_cblas_header_BLIS blis.h)
    set(_cblas_header_OpenBLAS openblas_config.h)
    _cblas_try(${_cblas_candidate} ${_cblas_library} ${_cblas_header_${_cblas_candidate}} ${_cblas_library}-openmp)
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CBLAS REQUIRED_VARS CBLAS_LIBRARY CBLAS_INCLUDE_DIR CBLAS_NAME
  REASON_FAILURE_MESSAGE "install libblis-openmp-dev or libopenblas-openmp-dev (never a pthread build)")
if(CBLAS_FOUND AND NOT TARGET CBLAS::CBLAS)
  add_library(CBLAS::CBLAS UNKNOWN IMPORTED)
  string(TOUPPER ${CBLAS_NAME} _cblas_define)
  set_target_properties(CBLAS::CBLAS PROPERTIES IMPORTED_LOCATION ${CBLAS_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CBLAS_INCLUDE_DIR}
    INTERFACE_COMPILE_DEFINITIONS MPT_CBLAS_${_cblas_define}=1)
  message(STATUS "CBLAS: ${CBLAS_NAME} (${CBLAS_LIBRARY})")
endif()
