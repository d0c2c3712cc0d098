# Decides whether the CUDA parts are built (MPT_WITH_CUDA) and how they are compiled.

set(MPT_WITH_CUDA OFF)
if(NOT MPT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90a)
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it yet
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    set(MPT_WITH_CUDA ON)
  elseif(MPT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MPT_CUDA=ON, but nvcc was not found. Put it on PATH, set CUDACXX, or use MPT_CUDA=AUTO.")
  endif()
endif()
message(STATUS "CUDA: ${MPT_WITH_CUDA}")

function(mpt_cuda_options target)
  # fmt switches constexpr off under nvcc and then fails to compile in C++20; nvcc 13 handles it.
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda
                                           -Werror=all-warnings>)
  target_link_libraries(${target} PUBLIC CUDA::cudart)
endfunction()
