#!/usr/bin/env bash
# Lets a fuzzer look for files that a reader neither accepts nor refuses with a message, under the address and
# undefined-behaviour sanitizers. Installs clang if it is missing, and builds the targets.
#
#   scripts/fuzz.sh                        every target for a minute
#   scripts/fuzz.sh --seconds 3600         for an hour each, as before a release
#   scripts/fuzz.sh manifest safetensors   these alone; their names are those of tests/fuzz/corpus/
#
#   --seconds N   of every target (default: 60)
#
# A finding is an input at which a reader crashes, a sanitizer reports, an exception other than Error leaves the reader,
# more than 2 seconds or 1 GiB are needed, or one piece of memory of more than 256 MiB. It is stored in
# build/fuzz/findings, with the fuzzer's report beside it. Other inputs that reach new code are kept in
# build/fuzz/corpus, from where the next run goes on. Exit code 1: at least one finding.
#
# The compiler is the newest clang that can build the targets, or CXX.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build/fuzz
seeds=$root/tests/fuzz/corpus
mapfile -t known < <(basename -a "$root"/tests/fuzz/*_fuzz.cpp | sed 's/_fuzz\.cpp$//')

seconds=60
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--seconds: expected a number of seconds, found '${2:-}'"
      seconds=$2
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown argument $1; expected --seconds, --help or targets: ${known[*]}" ;;
    *)
      [[ " ${known[*]} " == *" $1 "* ]] || die "unknown target $1; expected ${known[*]}"
      targets+=("$1")
      shift ;;
  esac
done
if [ ${#targets[@]} -eq 0 ]; then targets=("${known[@]}"); fi

# Whether a compiler has all that a target needs: C++20 as the sources use it, the fuzzer, sanitizers and OpenMP.
can_build() {
  local probe=$build/probe
  mkdir -p "$probe"
  printf '%s\n' '#include <omp.h>' '#include "core/io/safetensors.h"' \
    'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return omp_get_max_threads() > 0 ? 0 : 1; }' \
    >"$probe/probe.cpp"
  "$1" -std=c++20 -I"$root/src" -fopenmp -fsanitize=fuzzer,address,undefined "$probe/probe.cpp" -o "$probe/probe" -lfmt \
    >"$probe/log" 2>&1
}

newest_clang() {
  local version
  for version in -{30..14} ""; do
    if command -v "clang++$version" >/dev/null && can_build "clang++$version"; then
      command -v "clang++$version"
      return
    fi
  done
  return 1
}

find_compiler() {
  if [ -n "${CXX:-}" ]; then
    can_build "$CXX" || die "CXX=$CXX cannot build the targets; see $build/probe/log"
    command -v "$CXX"
  else
    newest_clang
  fi
}

inputs_in() { find "$1" -type f | wc -l; }
# From a report: its final statistics, or the last line of progress if it did not get there.
executed() {
  sed -n 's/^stat::number_of_executed_units: *//p; s/^#\([0-9]*\)\t.*/\1/p' "$1" | tail -n 1
}
coverage() { sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$1" | tail -n 1; }

# Says how far the fuzzer is, about ten times but not more often than every ten seconds.
watch() {
  local process=$1 name=$2 log=$3 every=$((seconds / 10 > 10 ? seconds / 10 : 10)) start=$SECONDS said=$SECONDS
  while kill -0 "$process" 2>/dev/null; do
    sleep 1
    if [ $((SECONDS - said)) -ge "$every" ]; then
      said=$SECONDS
      say "  $name: $((SECONDS - start)) of $seconds s, $(executed "$log") inputs, coverage $(coverage "$log")"
    fi
  done
}

fuzzer=
trap 'if [ -n "$fuzzer" ]; then kill "$fuzzer" 2>/dev/null || true; fi' EXIT

# Returns 1 at a finding.
run_target() {
  local name=$1 learned=$build/corpus/$1 findings=$build/findings/$1 before start=$SECONDS status=0
  local log=$findings/report.txt
  rm -rf "$findings"
  mkdir -p "$learned" "$findings" "$seeds/$name"
  before=$(inputs_in "$learned")
  # The readers' own limit of time is processor time (tests/fuzz/input_directory.h); this one is for what never ends.
  "$build/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$findings/" "$learned" "$seeds/$name" >"$log" 2>&1 </dev/null &
  fuzzer=$!
  watch "$fuzzer" "$name" "$log"
  wait "$fuzzer" || status=$?
  fuzzer=
  local summary
  summary="$name: $((SECONDS - start)) s, $(executed "$log") inputs, coverage $(coverage "$log")"
  if [ $status -ne 0 ]; then
    say "$summary; FINDING (status $status): $(find "$findings" -type f ! -name report.txt | head -n 1), report in $log"
    return 1
  fi
  say "$summary, $(($(inputs_in "$learned") - before)) new in $learned"
}

compiler=$(find_compiler) || {
  "$root/scripts/install_deps.sh" --fuzz
  compiler=$(find_compiler) || die "no clang here can build the targets; see $build/probe/log"
}
# A tree of another compiler begins anew: CMake would forget the preset.
grep -qsx "CMAKE_CXX_COMPILER:[A-Z]*=$compiler" "$build/CMakeCache.txt" || rm -f "$build/CMakeCache.txt"
configure fuzz "-DCMAKE_CXX_COMPILER=$compiler" >/dev/null
say "building ${#targets[@]} targets with $("$compiler" --version | head -n 1)"
cmake --build "$build" --target "${targets[@]/%/_fuzz}"

export ASAN_OPTIONS=quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1
failed=()
for name in "${targets[@]}"; do
  run_target "$name" || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then die "findings in ${failed[*]}"; fi
say "no finding in ${#targets[@]} targets of $seconds s"
