# Finds cuDNN 9 where its packages put it: beside the CUDA toolkit, in the system's paths, or in the wheel
# nvidia-cudnn-cu<N> of the Python that CMake finds. Defines CUDNN::cudnn and CUDNN_VERSION.

include(MptPythonPackages)
mpt_python_packages(_cudnn_wheels)
list(TRANSFORM _cudnn_wheels APPEND /nvidia/cudnn)
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
          PATHS /usr/local/cuda/include ${_cudnn_wheels} PATH_SUFFIXES include ${CMAKE_LIBRARY_ARCHITECTURE})
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR}
             PATHS /usr/local/cuda/lib64 ${_cudnn_wheels} PATH_SUFFIXES lib lib64)
if(CUDNN_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h _cudnn_lines REGEX "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
  string(REGEX REPLACE "[^0-9;]" "" _cudnn_numbers "${_cudnn_lines}")
  list(JOIN _cudnn_numbers "." CUDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION
  REASON_FAILURE_MESSAGE "install libcudnn9-dev-cuda-13 of NVIDIA's repository, or give CUDNN_LIBRARY and CUDNN_INCLUDE_DIR")
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
