# Shared by the scripts of this directory: where the repository is, messages, build trees. Sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Standard descriptors that are closed, as under a daemon or after >&-, lead nowhere: the first line that is printed would end
# a script, and files would take their numbers. A copy of one that is closed fails.
: 9>&2 || exec 2>/dev/null
{ : 9<&0; } 2>/dev/null || exec </dev/null
{ : 9>&1; } 2>/dev/null || exec >/dev/null

# The distribution's interpreter, which sees python3-matplotlib; another one earlier on PATH may not.
python_path() {
  if [ -x /usr/bin/python3 ]; then say "${MPT_PYTHON:-/usr/bin/python3}"; else say "${MPT_PYTHON:-python3}"; fi
}
run_python() { PYTHONPATH=$root/scripts${PYTHONPATH:+:$PYTHONPATH} "$(python_path)" "$@"; }

say() { printf '%s\n' "$*"; }
die() { printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
# The comment at the top of the script that runs.
usage() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0"; }

# Every purpose has a build tree of its own, build/<preset>, so that no script meets what another one configured.
# Where ccache is installed it compiles, by paths relative to the repository, so that another clone finds what one has made.
# configure PRESET [CMAKE ARGUMENTS]
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
configure() {
  local preset=$1 launcher
  launcher=$(command -v ccache) || launcher=
  shift
  cmake -S "$root" --preset "$preset" "-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher" "$@"
}

# The program alone, which needs none of the tests' packages: presets program and program-cuda. Installed scripts lie in
# <prefix>/share/mpretrain, the program in <prefix>/bin.
program_path() {
  if [ -e "$root/CMakeLists.txt" ]; then say "$root/build/$1/mpretrain"; else say "${root%/share/mpretrain}/bin/mpretrain"; fi
}
build_program() {
  configure "$1" && cmake --build "$root/build/$1" --target mpretrain
}

# GPU code for the GPU that is here, else for Hopper: one architecture compiles in a third of the time of three.
cuda_architecture() {
  local found
  found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .) || found=
  case $found in
    "" | 90) say 90a-real ;;
    100) say 100a-real ;;
    *) say "$found-real" ;;
  esac
}

# once MARKER COMMAND...: runs the command unless the file MARKER says that this very command has succeeded.
once() {
  local marker=$1
  shift
  if [ -e "$marker" ] && [ "$(cat "$marker")" = "$*" ]; then
    say "already done"
    return
  fi
  rm -f "$marker"
  "$@"
  mkdir -p "$(dirname "$marker")"
  printf '%s' "$*" >"$marker"
}
