# mpt_layer(name [WITH room...] [UNITS n] [ALONE regex] [OPTIMIZE level] DEPENDS ...): the library mpt_<name> of all sources
# but CUDA's in src/<name> and in the rooms above it that are compiled with it, with the project's options.
#
# A source takes longer to compile for the headers it includes than for its own lines. So sources are compiled as UNITS
# units of many each, except those whose loops take a step's time or whose bits depend on what is inlined into them: the
# paths that match ALONE, and the sources with options of their own. OPTIMIZE is for layers without such loops. With
# MPT_UNITY=OFF every source compiles by itself, which finds missing includes; a job of CI does.
include(CheckCXXSourceCompiles)

# All processors with AMX have two AVX-512 units and keep their clock, which GCC's tuning does not know.
if(MPT_NATIVE)
  set(CMAKE_REQUIRED_FLAGS -march=native)
  check_cxx_source_compiles("#ifndef __AMX_TILE__\n#error\n#endif\nint main() {}" MPT_WIDE_VECTORS)
  unset(CMAKE_REQUIRED_FLAGS)
endif()

function(mpt_compile_options target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-unknown-pragmas)
  if(MPT_WERROR)
    list(APPEND warnings -Werror)
  endif()
  # Follow what was inlined, which processor and sanitizer decide: GCC 12 sees faults that are not there.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND warnings -Wno-maybe-uninitialized -Wno-restrict)
  endif()
  # No errno and no trapping: what vectorising sqrt and comparisons needs; rounding is unaffected.
  set(options ${warnings} -fno-math-errno -fno-trapping-math)
  if(MPT_NATIVE)
    list(APPEND options -march=native $<$<BOOL:${MPT_WIDE_VECTORS}>:-mprefer-vector-width=512>)
  endif()
  if(MPT_SANITIZE)
    # Line tables are all that a report needs, and compile faster; the last -g counts.
    list(APPEND options -fsanitize=${MPT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    target_link_options(${target} PRIVATE -fsanitize=${MPT_SANITIZE})
  endif()
  if(MPT_FUZZ)
    # Assertions see indices beyond the size but within the capacity.
    list(APPEND options -fsanitize=fuzzer-no-link -D_GLIBCXX_ASSERTIONS)
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${options}>)
endfunction()

# The arithmetic of precision/ and optim/ is specified to the bit: never contracted, never reassociated.
function(mpt_exact_arithmetic target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
                                           $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
endfunction()

# The layers whose arithmetic is exact.
set(mpt_exact_layers precision optim)

# Notes CUDA sources of a layer for mpt_cuda_objects() and for the fake CUDA of the tests.
function(mpt_note_cuda_sources layer)
  if(layer IN_LIST mpt_exact_layers)
    set_property(GLOBAL APPEND PROPERTY MPT_EXACT_CUDA_SOURCES ${ARGN})
  else()
    set_property(GLOBAL APPEND PROPERTY MPT_CUDA_SOURCES ${ARGN})
  endif()
endfunction()

# Compiles the sources of a target as `units` units, without those that match `alone`.
function(mpt_join_sources target units alone)
  get_target_property(sources ${target} SOURCES)
  if(alone)
    set(kept ${sources})
    list(FILTER kept INCLUDE REGEX "${alone}")
    set_source_files_properties(${kept} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(FILTER sources EXCLUDE REGEX "${alone}")
  endif()
  list(LENGTH sources count)
  math(EXPR batch "(${count} + ${units} - 1) / ${units}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MPT_UNITY} UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

function(mpt_layer name)
  cmake_parse_arguments(ARG "" "UNITS;ALONE;OPTIMIZE" "DEPENDS;WITH" ${ARGN})
  set(patterns)
  foreach(room ${name} ${ARG_WITH})
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/src/${room}/*.cpp)
  endforeach()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  if(NOT MPT_WITH_MPI)
    list(FILTER sources EXCLUDE REGEX "/mpi/[^/]*\\.cpp$")
  endif()
  if(NOT MPT_WITH_GLOO)
    list(FILTER sources EXCLUDE REGEX "/gloo/[^/]*\\.cpp$")
  endif()
  # What calls CUDA: kernels, and ordinary C++ in a directory named cuda.
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cu)
  set(cuda_cpp_sources ${sources})
  list(FILTER cuda_cpp_sources INCLUDE REGEX "/cuda/[^/]*\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "/cuda/[^/]*\\.cpp$")
  mpt_note_cuda_sources(${name} ${cuda_sources} ${cuda_cpp_sources})
  set(target mpt_${name})
  if(NOT sources)
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target} INTERFACE ${ARG_DEPENDS})
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY MPT_LAYERS ${target})
  add_library(${target} STATIC ${sources})
  foreach(room ${ARG_WITH})
    add_library(mpt_${room} ALIAS ${target})
  endforeach()
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS})
  mpt_compile_options(${target})
  if(ARG_UNITS)
    mpt_join_sources(${target} ${ARG_UNITS} "${ARG_ALONE}")
  endif()
  target_compile_options(${target} PRIVATE ${ARG_OPTIMIZE})
  if(name IN_LIST mpt_exact_layers)
    mpt_exact_arithmetic(${target})
  endif()
endfunction()
