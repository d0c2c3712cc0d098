# Finds the headers of cudnn-frontend: in CudnnFrontend_INCLUDE_DIR, in the system's paths, beside cuDNN, where
# scripts/cudnn_frontend.sh puts them, or in the wheel nvidia-cudnn-frontend of the Python that CMake finds. Defines
# CudnnFrontend::cudnn_frontend.

if(CudnnFrontend_INCLUDE_DIR AND NOT EXISTS ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend.h)
  unset(CudnnFrontend_INCLUDE_DIR CACHE)  # given to an earlier configuration, and gone
endif()
include(MptPythonPackages)
mpt_python_packages(_frontend_wheels)
list(TRANSFORM _frontend_wheels APPEND /include)
find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h
          HINTS ${CUDNN_INCLUDE_DIR}
          PATHS ${PROJECT_SOURCE_DIR}/build/cudnn_frontend/include /usr/local/cuda/include ${_frontend_wheels})
if(CudnnFrontend_INCLUDE_DIR AND EXISTS ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h)
  file(STRINGS ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h _frontend_lines
       REGEX "^#define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION ")
  string(REGEX REPLACE "[^0-9;]" "" _frontend_numbers "${_frontend_lines}")
  list(JOIN _frontend_numbers "." CudnnFrontend_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudnnFrontend REQUIRED_VARS CudnnFrontend_INCLUDE_DIR
  VERSION_VAR CudnnFrontend_VERSION
  REASON_FAILURE_MESSAGE "scripts/cudnn_frontend.sh fetches them, or give CudnnFrontend_INCLUDE_DIR")
if(CudnnFrontend_FOUND AND NOT TARGET CudnnFrontend::cudnn_frontend)
  add_library(CudnnFrontend::cudnn_frontend INTERFACE IMPORTED)
  set_target_properties(CudnnFrontend::cudnn_frontend PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${CudnnFrontend_INCLUDE_DIR})
endif()
mark_as_advanced(CudnnFrontend_INCLUDE_DIR)
