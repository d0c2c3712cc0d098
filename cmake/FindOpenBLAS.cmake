# Finds an OpenMP build of OpenBLAS, to compare our products with. Defines OpenBLAS::OpenBLAS.
#
# A pthread build beside the program's own OpenMP loops keeps two spinning thread pools, so only the -openmp directory
# of Debian and Ubuntu is looked at, and, elsewhere, what OpenBLAS_LIBRARY and OpenBLAS_INCLUDE_DIR name.

set(_openblas_directories openblas-openmp ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
find_path(OpenBLAS_INCLUDE_DIR openblas_config.h PATHS /usr/include PATH_SUFFIXES ${_openblas_directories}
  NO_DEFAULT_PATH)
find_library(OpenBLAS_LIBRARY openblas PATHS /usr/lib PATH_SUFFIXES ${_openblas_directories} NO_DEFAULT_PATH)
mark_as_advanced(OpenBLAS_INCLUDE_DIR OpenBLAS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)

if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES IMPORTED_LOCATION ${OpenBLAS_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${OpenBLAS_INCLUDE_DIR})
endif()
