#!/usr/bin/env bash
# Builds from nothing, without a compiler cache, and prints processor seconds by layer and of the slowest units.
#
#   scripts/build_time.sh                 the program
#   scripts/build_time.sh --preset cpu    everything of a preset: the program with tests and benchmarks
#   scripts/build_time.sh --slowest 40    that many units
#
# Seconds are those that the compilers and linkers computed, not those that passed (ninja's log): they depend less on
# what else runs. The tree is build/time/<preset>, made anew.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# As a launcher of compilers and linkers: runs one and notes its processor seconds and its output.
if [ "${1:-}" = --note ]; then
  log=$2
  shift 2
  exec 3>&1 4>&2
  TIMEFORMAT='%3U %3S'
  status=0
  spent=$({ time "$@" >&3 2>&4; } 2>&1) || status=$?
  output=
  for ((i = 1; i < $#; ++i)); do
    if [ "${!i}" = -o ]; then next=$((i + 1)) && output=${!next}; fi
  done
  printf '%s %s\n' "$spent" "$output" >>"$log"
  exit $status
fi

preset=program slowest=20
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:-} && shift ;;
    --slowest) slowest=${2:-} && shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; expected --preset, --slowest or --help" ;;
  esac
  shift
done
[[ $slowest =~ ^[0-9]+$ ]] || die "--slowest: expected a number, found '$slowest'"

tree=$root/build/time/$preset log=$root/build/time/$preset.txt
rm -rf "$tree" "$log"
mkdir -p "$root/build/time"
note="$root/scripts/build_time.sh;--note;$log"
cmake -S "$root" -B "$tree" --preset "$preset" "-DCMAKE_CXX_COMPILER_LAUNCHER=$note" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$note" \
  "-DCMAKE_CXX_LINKER_LAUNCHER=$note" >/dev/null
start=$SECONDS
cmake --build "$tree"
passed=$((SECONDS - start))

# CMakeFiles/mpt_core.dir/... belongs to mpt_core; an output outside of such a directory was linked.
# shellcheck disable=SC2016  # awk's own
layer_of='{ layer = "linking"; if (match($3, /[^\/]+\.dir\//)) layer = substr($3, RSTART, RLENGTH - 5) }'
printf '\nprocessor seconds by layer\n'
awk "$layer_of"' { sum[layer] += $1 + $2 } END { for (l in sum) printf "%8.1f  %s\n", sum[l], l }' "$log" | sort -rn
printf '\nslowest units\n'
awk '{ printf "%8.1f  %s\n", $1 + $2, $3 }' "$log" | sort -rn | head -n "$slowest" || true
printf '\n'
awk -v passed=$passed '{ sum += $1 + $2 } END { printf "%.0f processor seconds in %d steps; %d s passed\n", sum, NR, passed }' "$log"
