# mpt_python_packages(variable): the directories where the Python on PATH keeps its packages, if there is one.
# NVIDIA ships headers and libraries as wheels too; nothing is installed or fetched here.

function(mpt_python_packages variable)
  find_program(MPT_PYTHON NAMES python3 python)
  mark_as_advanced(MPT_PYTHON)
  set(directories "")
  if(MPT_PYTHON)
    execute_process(COMMAND ${MPT_PYTHON} -c
      "import site, sysconfig; print(';'.join([sysconfig.get_path('purelib'), site.getusersitepackages()]))"
      OUTPUT_VARIABLE directories OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${variable} ${directories} PARENT_SCOPE)
endfunction()
