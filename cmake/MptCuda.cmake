# Decides whether the CUDA parts are built (MPT_WITH_CUDA), with cuDNN (MPT_WITH_CUDNN) and its frontend headers
# (MPT_WITH_CUDNN_FRONTEND) or without, and how they are compiled.

# Machine code for A100, Hopper and, where nvcc knows it, Blackwell. The a of 90a and 100a admits what only that
# generation has; as PTX it would run nowhere else, so later GPUs get the plain PTX of the newest.
function(mpt_cuda_architectures variable)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  if(known MATCHES "compute_100\n")
    set(${variable} 80-real 90a-real 100a-real 100-virtual PARENT_SCOPE)
  else()
    set(${variable} 80-real 90a-real 90-virtual PARENT_SCOPE)
  endif()
endfunction()

set(MPT_WITH_CUDA OFF)
set(MPT_WITH_CUDNN OFF)
set(MPT_WITH_CUDNN_FRONTEND OFF)
if(NOT MPT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      mpt_cuda_architectures(CMAKE_CUDA_ARCHITECTURES)
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
    if(NOT MPT_CUDNN STREQUAL "OFF")
      find_package(CUDNN 9)
      find_package(CudnnFrontend 1.13)
      if(CUDNN_FOUND)
        set(MPT_WITH_CUDNN ON)
      endif()
      if(CUDNN_FOUND AND CudnnFrontend_FOUND)
        set(MPT_WITH_CUDNN_FRONTEND ON)
      elseif(MPT_CUDNN STREQUAL "ON")
        message(FATAL_ERROR "MPT_CUDNN=ON, but cuDNN 9 or the headers of cudnn-frontend were not found (see above).")
      endif()
    endif()
  elseif(MPT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MPT_CUDA=ON, but nvcc was not found. Put it on PATH, set CUDACXX, or use MPT_CUDA=AUTO.")
  endif()
endif()
message(STATUS "CUDA: ${MPT_WITH_CUDA}, cuDNN: ${MPT_WITH_CUDNN}, cudnn-frontend: ${MPT_WITH_CUDNN_FRONTEND}")

function(mpt_cuda_options target)
  # fmt switches constexpr off under nvcc and then fails to compile in C++20; nvcc 13 handles it.
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda
                                           -Werror=all-warnings -Xptxas=-v>)
  # What -v says of each object's kernels is kept beside it, for a test to read.
  set_property(TARGET ${target} PROPERTY CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.sh
               ${CMAKE_CUDA_COMPILER_LAUNCHER})
  target_link_libraries(${target} PUBLIC CUDA::cudart)
endfunction()

# The libraries of NVIDIA that the CUDA device calls.
function(mpt_cuda_libraries target)
  if(NOT MPT_WITH_CUDA)
    return()
  endif()
  target_link_libraries(${target} PUBLIC CUDA::cudart PRIVATE CUDA::cublasLt CUDA::nvtx3)
  if(MPT_WITH_CUDNN)
    target_compile_definitions(${target} PRIVATE MPT_WITH_CUDNN)
    target_link_libraries(${target} PRIVATE CUDNN::cudnn)
  endif()
  if(MPT_WITH_CUDNN_FRONTEND)
    target_compile_definitions(${target} PRIVATE MPT_WITH_CUDNN_FRONTEND)
    target_link_libraries(${target} PRIVATE CudnnFrontend::cudnn_frontend CUDA::nvrtc)  # the headers call it
  endif()
endfunction()
