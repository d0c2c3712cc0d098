# Finds snappy, which not every distribution ships with a CMake package. Defines Snappy::snappy.

find_path(Snappy_INCLUDE_DIR snappy.h)
find_library(Snappy_LIBRARY snappy)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Snappy REQUIRED_VARS Snappy_LIBRARY Snappy_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libsnappy-dev")
if(Snappy_FOUND AND NOT TARGET Snappy::snappy)
  add_library(Snappy::snappy UNKNOWN IMPORTED)
  set_target_properties(Snappy::snappy PROPERTIES IMPORTED_LOCATION ${Snappy_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Snappy_INCLUDE_DIR})
endif()
mark_as_advanced(Snappy_INCLUDE_DIR Snappy_LIBRARY)
