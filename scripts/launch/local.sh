#!/usr/bin/env bash
# Trains with one rank a GPU of this machine, without PyTorch and without MPI.
#
#   scripts/launch/local.sh 8 --config 350m_fp8.json
#   MPRETRAIN=build/program-cuda/mpretrain scripts/launch/local.sh 2 --config 1b_fp8.json --resume auto
#
# The first argument is the number of ranks, all others are mpretrain's. Each rank gets the variables that torchrun sets;
# they meet at MASTER_PORT + 1 of this machine, by default a port made of this script's process number. SIGINT, SIGTERM and
# SIGUSR1 to this script go to all ranks, which save a checkpoint and end. When one fails, the others are sent SIGTERM, and
# 30 seconds later SIGKILL; the status of the first that failed is this script's. Ranks on the CPU need MPI: mpirun.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

case ${1:-} in -h | --help) usage; exit 0 ;; esac
[[ ${1:-} =~ ^[1-9][0-9]{0,3}$ ]] || die "the first argument is the number of ranks, not '${1:-}'; see --help"
ranks=$1
shift
program=${MPRETRAIN:-$(command -v mpretrain || program_path program-cuda)}
[ -x "$program" ] || die "$program is not there; build it, or say where it is: MPRETRAIN=..."

export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-$((20000 + $$ % 10000))}
export TORCHELASTIC_RUN_ID="local $$"  # tells this run's ranks from those of another
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + ranks - 1) / ranks))}

declare -A left=()  # process number: rank, of those that have not ended
status=0
signal_all() {
  if [ ${#left[@]} -gt 0 ]; then kill -s "$1" "${!left[@]}" 2>/dev/null || true; fi
}

# From here on every job has a process group of its own: a Ctrl-C reaches the ranks once, from here.
set -m
for name in INT TERM USR1; do
  # shellcheck disable=SC2064
  trap "signal_all $name" $name
done
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$program" "$@" </dev/null &
  left[$!]=$rank
done

guard=
rank_failed() {  # PROCESS
  if [ "$status" -ne 0 ]; then return; fi
  status=$2
  say "local.sh: rank ${left[$1]} ended with status $2; the others are ended" >&2
  unset "left[$1]"
  signal_all TERM
  if [ ${#left[@]} -gt 0 ]; then { sleep 30; signal_all KILL; } & guard=$!; fi
}

while [ ${#left[@]} -gt 0 ]; do
  wait -n "${!left[@]}" || true  # until one ends, or a signal has come
  for process in "${!left[@]}"; do
    if kill -0 "$process" 2>/dev/null; then continue; fi
    wait "$process" || rank_failed "$process" $?
    unset "left[$process]"
  done
done
if [ -n "$guard" ]; then kill -- "-$guard" 2>/dev/null || true; fi
exit "$status"
