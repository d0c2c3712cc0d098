# What `mpretrain --version` says of the build: one small source file, written anew when the commit changes.

# The variables named become what computes, what ranks exchange over, and what else is linked.
function(mpt_describe_backends devices ranks libraries)
  set(of_devices CPU)
  set(of_ranks "one process")
  if(MPT_WITH_CUDA)
    set(cudnn "no cuDNN")
    if(MPT_WITH_CUDNN)
      set(cudnn "cuDNN ${CUDNN_VERSION}")
    endif()
    set(of_devices "CPU; CUDA ${CUDAToolkit_VERSION} with cuBLASLt, ${cudnn}")
  endif()
  set(carriers)
  if(MPT_WITH_MPI)
    list(APPEND carriers "MPI ${MPI_CXX_VERSION}")
  endif()
  if(MPT_WITH_NCCL)
    list(APPEND carriers "NCCL ${NCCL_VERSION}")
  endif()
  if(carriers)
    list(JOIN carriers ", " names)
    set(of_ranks "several, over ${names}")
  endif()
  set(${devices} "${of_devices}" PARENT_SCOPE)
  set(${ranks} "${of_ranks}" PARENT_SCOPE)
  set(${libraries} "SentencePiece ${SentencePiece_VERSION}, fmt ${fmt_VERSION}, spdlog ${spdlog_VERSION}" PARENT_SCOPE)
endfunction()

# Adds the file to `target`. Everything but the commit is known now; that is asked for at every build.
function(mpt_add_build_info target)
  mpt_describe_backends(MPT_DEVICES MPT_RANKS MPT_LIBRARIES)
  set(MPT_COMMIT "@MPT_COMMIT@")
  set(template ${PROJECT_BINARY_DIR}/build_info.in)
  set(source ${PROJECT_BINARY_DIR}/build_info.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/build_info.in ${template} @ONLY)
  add_custom_target(mpt_build_info BYPRODUCTS ${source}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DTEMPLATE=${template} -DOUTPUT=${source}
            -P ${PROJECT_SOURCE_DIR}/cmake/write_build_info.cmake
    COMMENT "Asking for the commit" VERBATIM)
  target_sources(${target} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # another one for each commit
  set(instructions "the compiler's default")
  if(MPT_NATIVE)
    set(instructions "this machine (-march=native)")
  endif()
  target_compile_definitions(${target} PRIVATE MPT_INSTRUCTIONS="${instructions}")
endfunction()
