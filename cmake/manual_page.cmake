# Writes the manual page OUTPUT of PROGRAM out of what its --help says, of all verbs:
# cmake -DPROGRAM=... -DVERSION=... -DOUTPUT=... -P manual_page.cmake

# VARIABLE becomes what --help prints of a verb, of none for the program.
function(help_of variable)
  execute_process(COMMAND ${PROGRAM} ${ARGN} --help OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# VARIABLE becomes the verbs that a help text lists.
function(verbs_of text variable)
  set(verbs)
  string(FIND "${text}" "\nSubcommands:\n" at)
  if(at GREATER -1)
    string(SUBSTRING "${text}" ${at} -1 text)
    string(REGEX MATCHALL "\n  [a-z_-]+" verbs "${text}")
    list(TRANSFORM verbs STRIP)
  endif()
  set(${variable} "${verbs}" PARENT_SCOPE)
endfunction()

# Appends to the page: a section of literal text.
function(add_section title text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REPLACE "\n." "\n\\&." text "\n${text}")
  string(REPLACE "\n'" "\n\\&'" text "${text}")
  set(page "${page}.SH ${title}\n.nf${text}.fi\n" PARENT_SCOPE)
endfunction()

# A section of each verb below the words given, and of theirs.
function(add_verbs text)
  verbs_of("${text}" verbs)
  foreach(verb ${verbs})
    help_of(help ${ARGN} ${verb})
    string(TOUPPER "${ARGN} ${verb}" title)
    string(STRIP "${title}" title)
    string(REPLACE ";" " " title "${title}")
    add_section("${title}" "${help}")
    add_verbs("${help}" ${ARGN} ${verb})
  endforeach()
  set(page "${page}" PARENT_SCOPE)
endfunction()

help_of(help)
set(page ".TH MPRETRAIN 1 \"\" \"mpretrain ${VERSION}\" \"User commands\"\n.SH NAME\n")
string(APPEND page "mpretrain \\- pretrain LLaMA models in low precision\n")
add_section(SYNOPSIS "${help}")
add_verbs("${help}")
add_section(FILES "configs, and scripts that make corpora, draw and launch: share/mpretrain beside the program's bin
README and changelog: share/doc/mpretrain
")
file(WRITE ${OUTPUT} "${page}")
