# What is installed beside the program: configurations, the scripts that users start, manual page, completion, licence.

set(mpt_scripts_directory ${CMAKE_INSTALL_DATADIR}/mpretrain/scripts)

# Scripts that make corpora, draw, compare and launch runs, and the Python that they start. Those that build the program,
# measure it or reproduce the paper need the repository.
function(mpt_install_scripts)
  foreach(name common.sh fetch_corpus.sh prepare_c4.sh compare_runs.py plot_curves.py send_run.py tools.py
          launch/mpirun.sh launch/torchrun.sh launch/slurm.sbatch)
    get_filename_component(directory ${name} DIRECTORY)
    install(PROGRAMS scripts/${name} DESTINATION ${mpt_scripts_directory}/${directory})
  endforeach()
  set(tools scripts/mpretrain_tools)
  install(FILES ${tools}/__init__.py ${tools}/command.py ${tools}/descriptors.py ${tools}/files.py
          ${tools}/markdown.py ${tools}/repository.py ${tools}/tools.py ${tools}/with_parent.py DESTINATION ${mpt_scripts_directory}/mpretrain_tools)
  install(DIRECTORY ${tools}/corpus ${tools}/plots ${tools}/runs
          DESTINATION ${mpt_scripts_directory}/mpretrain_tools FILES_MATCHING PATTERN "*.py" PATTERN front_page.py EXCLUDE PATTERN __pycache__ EXCLUDE)
endfunction()

# The manual page is what the program says of itself, asked when it is installed.
function(mpt_install_manual target)
  set(page ${PROJECT_BINARY_DIR}/mpretrain.1)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DPROGRAM=$<TARGET_FILE:${target}>\" \"-DOUTPUT=${page}\"
                \"-DVERSION=${PROJECT_VERSION}\" -P \"${PROJECT_SOURCE_DIR}/cmake/manual_page.cmake\"
                COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()

function(mpt_install target)
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/mpretrain/configs)
  mpt_install_scripts()
  mpt_install_manual(${target})
  install(FILES scripts/completion/mpretrain DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  # zsh of Debian looks for files of packages elsewhere than for those of /usr/local.
  set(zsh site-functions)
  if(MPT_PACKAGE)
    set(zsh vendor-completions)
  endif()
  install(FILES scripts/completion/_mpretrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh})
  install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mpretrain)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mpretrain RENAME copyright)
endfunction()
