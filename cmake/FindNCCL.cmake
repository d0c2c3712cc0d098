# Finds NCCL: in the system's paths, beside the CUDA toolkit, or in the wheel nvidia-nccl-cu<N> of the Python that
# CMake finds. Defines NCCL::nccl and NCCL_VERSION.

include(MptPythonPackages)
mpt_python_packages(_nccl_wheels)
list(TRANSFORM _nccl_wheels APPEND /nvidia/nccl)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
          PATHS /usr/local/cuda/include ${_nccl_wheels} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR}
             PATHS /usr/local/cuda/lib64 /usr/local/cuda/lib ${_nccl_wheels} PATH_SUFFIXES lib lib64)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" _nccl_numbers "${_nccl_lines}")
  list(JOIN _nccl_numbers "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE "install libnccl-dev of NVIDIA's repository, or give NCCL_LIBRARY and NCCL_INCLUDE_DIR")
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
