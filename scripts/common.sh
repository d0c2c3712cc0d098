# Shared by the scripts of this directory: where the repository is, messages, build settings. Sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The distribution's interpreter, which sees python3-matplotlib; another one earlier on PATH may not.
python_path() {
  if [ -x /usr/bin/python3 ]; then say "${MPT_PYTHON:-/usr/bin/python3}"; else say "${MPT_PYTHON:-python3}"; fi
}
run_python() { "$(python_path)" "$@"; }

say() { printf '%s\n' "$*"; }
die() { printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# The CUDA preset where nvcc is there, so that its code is compiled too; MPT_PRESET decides otherwise.
default_preset() {
  if [ -n "${MPT_PRESET:-}" ]; then say "$MPT_PRESET"; elif command -v nvcc >/dev/null; then say cuda; else say cpu; fi
}

# The preset of a build that is there already, of the tests say; else the one that is fastest to build.
present_preset() {
  local preset
  preset=$(default_preset)
  if [ -e "$root/build/$preset/CMakeCache.txt" ]; then say "$preset"; else say "${MPT_PRESET:-cpu}"; fi
}

# configure PRESET [CMAKE ARGUMENTS]
configure() {
  local preset=$1
  shift
  if command -v ccache >/dev/null; then set -- -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"; fi
  cmake -S "$root" --preset "$preset" "$@"
}

# build_program PRESET: the program alone; a user's machine need not have what the tests are built with.
build_program() {
  local options=()
  if [ ! -e /usr/include/gtest/gtest.h ]; then options=(-DMPT_TESTS=OFF -DMPT_BENCH=OFF); fi
  configure "$1" "${options[@]}"
  cmake --build "$root/build/$1" --target mpretrain
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
