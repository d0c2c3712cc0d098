#!/usr/bin/env bash
# Installs what is missing, builds everything and runs the tests; the last lines are ctest's own summary.
#
#   scripts/test.sh                                  the tests, of which some run over a part of what they could cover
#   scripts/test.sh --all                            the tests over all of it: hours instead of minutes
#   scripts/test.sh -R '^optim/'                     those whose name matches; every other argument goes to ctest
#   scripts/test.sh --layers core,ranks              builds and runs the tests of these layers and nothing else
#   MPT_PRESET=asan-ubsan scripts/test.sh            another preset: cpu, cuda, asan-ubsan or tsan
#   CUDAARCHS='80-real;90a-real' scripts/test.sh     GPU code for more than one architecture
#
# Without MPT_PRESET the preset is cuda where nvcc is on PATH, else cpu. GPU code is compiled for one architecture:
# that of the GPU here, or Hopper.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

layers=
all=
while true; do
  case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --all)
      export MPT_ALL_TESTS=1
      all=yes
      shift ;;
    --layers)
      [ -n "${2:-}" ] || die "--layers: expected names such as core,comm"
      layers=$2
      shift 2 ;;
    *) break ;;
  esac
done
if [ -n "${MPT_PRESET:-}" ]; then preset=$MPT_PRESET; elif command -v nvcc >/dev/null; then preset=cuda; else preset=cpu; fi
case $preset in
  cpu | cuda | asan-ubsan | tsan) ;;
  *) die "MPT_PRESET=$preset has no tests; expected cpu, cuda, asan-ubsan or tsan" ;;
esac

targets=(all)
tests=("$@")
if [ -n "$layers" ]; then
  read -ra names <<<"${layers//,/ }"
  targets=("${names[@]/#/mpt_}")
  targets=("${targets[@]/%/_tests}")
  tests=(-L "^(${layers//,/|})\$" "$@")
fi
# Tests that take long and rarely find what the others do not, unless tests are chosen by their names.
long=()
if [ -z "$all" ] && [ $# -eq 0 ]; then long=(-E "$(grep -v '^#' "$root/tests/long_tests.txt" | paste -sd '|')"); fi
options=()
if [ "$preset" = cuda ]; then options=("-DCMAKE_CUDA_ARCHITECTURES=${CUDAARCHS:-$(cuda_architecture)}"); fi

"$root/scripts/install_deps.sh" --dev
if [ "$preset" = cuda ]; then
  if [ -n "${MPT_CUDNN:-}" ]; then options+=("-DMPT_CUDNN=$MPT_CUDNN"); fi
  "$root/scripts/cudnn_frontend.sh" || [ "${MPT_CUDNN:-}" != ON ] || die "MPT_CUDNN=ON needs the headers of cudnn-frontend"
fi
configure "$preset" "${options[@]}"
cmake --build "$root/build/$preset" --target "${targets[@]}"
ctest --test-dir "$root/build/$preset" --output-on-failure --no-tests=error -j"$(nproc)" "${long[@]}" "${tests[@]}"
