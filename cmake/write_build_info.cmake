# Writes OUTPUT from TEMPLATE with the commit of SOURCE, "unknown" outside a repository; leaves it alone if nothing has
# changed: cmake -DSOURCE=... -DTEMPLATE=... -DOUTPUT=... -P write_build_info.cmake

# An archive unpacked inside another repository is not of that one's commit.
function(mpt_commit variable)
  set(${variable} unknown PARENT_SCOPE)
  find_program(git git)
  if(NOT git)
    return()
  endif()
  set(ask ${git} --no-optional-locks -C ${SOURCE})
  execute_process(COMMAND ${ask} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${SOURCE} source)
  if(NOT top STREQUAL source)
    return()
  endif()
  execute_process(COMMAND ${ask} describe --always --dirty --abbrev=12 --exclude=* RESULT_VARIABLE failed
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(${variable} ${commit} PARENT_SCOPE)
  endif()
endfunction()

mpt_commit(MPT_COMMIT)
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
