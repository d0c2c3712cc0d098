#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests; the last lines are ctest's own summary.
#
#   scripts/test.sh                     all tests
#   scripts/test.sh -R optim            those whose name matches; every argument goes to ctest
#   MPT_PRESET=asan-ubsan scripts/test.sh
#
# Without MPT_PRESET the preset is cuda where nvcc is on PATH, else cpu.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
preset=$(default_preset)

"$root/scripts/install_deps.sh" --dev
configure "$preset"
cmake --build "$root/build/$preset"
ctest --test-dir "$root/build/$preset" --output-on-failure --no-tests=error -j"$(nproc)" "$@"
