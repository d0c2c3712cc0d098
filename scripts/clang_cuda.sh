#!/usr/bin/env bash
# Compiles every kernel file once more with clang's CUDA front end, which sees other faults than nvcc's; makes no code.
#
#   scripts/clang_cuda.sh [BUILD]      # build/cuda, which has the generated kernel files and compile_commands.json
#   CLANG=clang++-22 scripts/clang_cuda.sh
#
# Exits with 77, which ctest takes for skipped, where no clang is new enough: docs/benchmarks/gpu_kernels.md says which.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  -*) die "unknown argument $1; expected a build directory or --help" ;;
esac
build=${1:-$root/build/cuda}
cuda=${CUDA_PATH:-/usr/local/cuda}
first=22 # the first that parses the headers of CUDA 13

newest_clang() {
  local version
  for version in 25 24 23 "$first"; do
    if command -v "clang++-$version"; then return; fi
  done
  echo "scripts/clang_cuda.sh: skipped, no clang++-$first or newer (Debian: apt install clang-$first)" >&2
  exit 77
}

clang=${CLANG:-$(newest_clang)}
mapfile -t sources < <(grep -o '"file": ".*\.cu"' "$build/compile_commands.json" | cut -d'"' -f4 |
  grep -v /tests/ | sort -u)
if [ ${#sources[@]} -eq 0 ]; then
  echo "scripts/clang_cuda.sh: error: $build/compile_commands.json names no kernel file" >&2
  exit 1
fi

# Not told apart from faults: a | of two conditions that saves a branch, what only the device's half of a function
# reads, and that clang knows CUDA 13 in part.
options=(-std=c++20 -x cuda -fsyntax-only --cuda-path="$cuda" --cuda-gpu-arch=sm_90a -I"$root/src" -DFMT_USE_CONSTEXPR=1
  -Wall -Wextra -Werror -Wno-unknown-cuda-version -Wno-unknown-pragmas -Wno-bitwise-instead-of-logical
  -Wno-unused-parameter)
failed=0
for source in "${sources[@]}"; do
  "$clang" "${options[@]}" "$source" || failed=1
done
echo "$("$clang" --version | head -n 1): ${#sources[@]} kernel files, $([ $failed = 0 ] && echo 'no faults' || echo faults)"
exit $failed
