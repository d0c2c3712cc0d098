# MPT_PACKAGE=ON: one build that is fast on every processor, and the packages made of it.
#
# All code lies in a shared library that is built for several levels of the instruction set; the program is a few lines
# that call it. The dynamic loader takes the best level that the machine has, because glibc 2.33 and newer look into
# glibc-hwcaps/<level>/ of each directory they search (ld.so --help lists the levels):
#
#   bin/mpretrain                                               RUNPATH $ORIGIN/../lib/mpretrain
#   lib/mpretrain/libmpretrain.so.0                             any x86-64, or the only one on another architecture
#   lib/mpretrain/glibc-hwcaps/x86-64-v3/libmpretrain.so.0      AVX2 and fused multiply-add
#   lib/mpretrain/glibc-hwcaps/x86-64-v4/libmpretrain.so.0      AVX-512
#
# The layers that compute are compiled for each level. The others, which take most of the time to compile and none of a
# step's, are compiled once and linked into each. Everything except the register tiles of the GEMMs is compiled with
# -ffp-contract=off, so that all levels have the same bits (docs/numerics.md "What has the same bits").

option(MPT_PACKAGE "Build the program for all levels of the instruction set, to be packaged with cpack" OFF)
if(MPT_PACKAGE AND MPT_NATIVE)
  message(FATAL_ERROR "MPT_PACKAGE=ON builds for every machine, MPT_NATIVE=ON for this one: set MPT_NATIVE=OFF, or use "
                      "the preset package.")
endif()

set(mpt_library_directory lib/mpretrain)  # below the prefix, on every distribution
set(mpt_levelled_layers mpt_device mpt_ranks mpt_precision mpt_model mpt_optim mpt_toy)

# VARIABLE becomes the levels of this architecture, the lowest first.
function(mpt_levels variable)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(${variable} x86-64 x86-64-v3 x86-64-v4 PARENT_SCOPE)
  else()
    set(${variable} ${CMAKE_SYSTEM_PROCESSOR} PARENT_SCOPE)
  endif()
endfunction()

# VARIABLE becomes the options of a level. The lowest one of x86-64 lacks the instruction of fused multiply-adds.
function(mpt_level_options level variable)
  set(options -ffp-contract=off -DMPT_PORTABLE_BITS)
  if(level MATCHES "^x86-64")
    list(APPEND options -march=${level})
  endif()
  if(level STREQUAL "x86-64")
    list(APPEND options -DMPT_SOFTWARE_FMA)
  elseif(level STREQUAL "x86-64-v4")
    list(APPEND options -mprefer-vector-width=512)  # Clang prefers 256
  endif()
  set(${variable} ${options} PARENT_SCOPE)
endfunction()

# VARIABLE becomes what the targets named link with, but for one another.
function(mpt_external_libraries variable)
  set(all)
  foreach(target ${ARGN})
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(libraries)
      list(APPEND all ${libraries})
    endif()
  endforeach()
  list(FILTER all EXCLUDE REGEX "^mpt_")
  list(REMOVE_DUPLICATES all)
  set(${variable} ${all} PARENT_SCOPE)
endfunction()

# The objects of a layer for a level: the target mpt_<layer>_<level>.
function(mpt_level_objects layer level externals)
  set(target ${layer}_${level})
  foreach(property SOURCES COMPILE_OPTIONS COMPILE_DEFINITIONS UNITY_BUILD UNITY_BUILD_BATCH_SIZE)
    get_target_property(${property} ${layer} ${property})
    if(NOT ${property})
      set(${property})
    endif()
  endforeach()
  list(FILTER SOURCES EXCLUDE REGEX "/build_info\\.cpp$")  # which names the level
  mpt_level_options(${level} level_options)
  add_library(${target} OBJECT ${SOURCES})
  if(UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${UNITY_BUILD_BATCH_SIZE})
  endif()
  target_compile_options(${target} PRIVATE ${COMPILE_OPTIONS} ${level_options})
  target_compile_definitions(${target} PRIVATE ${COMPILE_DEFINITIONS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE ${externals})
endfunction()

# The library of a level, mpt_level_<level>, at its place below the build tree and the prefix. The linker keeps the first of
# equal inline functions, so the level's objects come before those for the lowest one. CUDA's objects, which are the same
# at all levels, are in each: what they register is then in the library that the program loads.
function(mpt_level_library level lowest directory externals)
  set(library mpt_level_${level})
  add_library(${library} SHARED)
  get_property(others GLOBAL PROPERTY MPT_LAYERS)
  foreach(layer ${mpt_levelled_layers})
    mpt_level_objects(${layer} ${level} "${externals}")
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:${layer}_${level}>)
    list(REMOVE_ITEM others ${layer})
  endforeach()
  foreach(layer ${others})
    if(NOT TARGET ${layer}_${lowest})
      mpt_level_objects(${layer} ${lowest} "${externals}")
    endif()
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:${layer}_${lowest}>)
  endforeach()
  target_sources(${library} PRIVATE ${PROJECT_BINARY_DIR}/build_info.cpp)
  target_compile_definitions(${library} PRIVATE MPT_INSTRUCTIONS="${level}")
  target_include_directories(${library} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  if(MPT_WITH_CUDA)
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:mpt_cuda> $<TARGET_OBJECTS:mpt_cuda_exact>)
  endif()
  target_link_libraries(${library} PRIVATE ${externals})
  target_link_options(${library} PRIVATE -Wl,--no-undefined)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME mpretrain SUFFIX .so.0
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${directory})
  install(TARGETS ${library} LIBRARY DESTINATION ${directory})
endfunction()

# The program as a caller of the library. It lies in bin/ of the build tree and finds the levels as an installed one does.
function(mpt_packaged_program target)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
  set(cuda)
  if(MPT_WITH_CUDA)
    set(cuda mpt_cuda mpt_cuda_exact)
    set_target_properties(mpt_cuda mpt_cuda_exact PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  get_property(layers GLOBAL PROPERTY MPT_LAYERS)
  mpt_external_libraries(externals ${layers} ${cuda})
  mpt_levels(levels)
  list(POP_FRONT levels lowest)
  mpt_level_library(${lowest} ${lowest} ${mpt_library_directory} "${externals}")
  foreach(level ${levels})
    mpt_level_library(${level} ${lowest} ${mpt_library_directory}/glibc-hwcaps/${level} "${externals}")
    add_dependencies(${target} mpt_level_${level})
  endforeach()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE mpt_level_${lowest} CLI11::CLI11)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../${mpt_library_directory}")
  # The static libraries of the layers serve tests alone.
  set_target_properties(${layers} PROPERTIES EXCLUDE_FROM_ALL ON)
endfunction()

# `ctest --test-dir build/package`: the levels are found, and train to the same weights.
function(mpt_test_levels target)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  add_test(NAME package/levels COMMAND Python3::Interpreter -B
    ${PROJECT_SOURCE_DIR}/tests/scripts/levels_test.py --program $<TARGET_FILE:${target}>)
  set_tests_properties(package/levels PROPERTIES TIMEOUT 600
    ENVIRONMENT "OMP_WAIT_POLICY=passive;PYTHONPATH=${PROJECT_SOURCE_DIR}/scripts")
endfunction()

# A .deb, whose dependencies dpkg-shlibdeps finds, and an archive that may be unpacked anywhere:
# cmake --build --preset package --target package
macro(mpt_packages)
  set(CPACK_GENERATOR DEB TGZ)
  set(CPACK_PACKAGE_NAME mpretrain)
  set(CPACK_PACKAGE_VENDOR "The mpretrain authors")
  set(CPACK_PACKAGE_CONTACT "The mpretrain authors")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_PACKAGE_DESCRIPTION
      "Takes text to a trained model: tokenize, shard, train, evaluate, checkpoint, resume, export. Weights are stored in few bits.")
  set(CPACK_SYSTEM_NAME linux-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_STRIP_FILES ON)
  set(CPACK_VERBATIM_VARIABLES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/${mpt_library_directory})
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, openmpi-bin")  # scripts and mpirun
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3-matplotlib)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/prerm)
  include(CPack)
endmacro()
