#!/usr/bin/env bash
# Trains with one rank per GPU of this machine, without PyTorch and without MPI; on several machines, run it on each of
# them at the same time.
#
#   scripts/launch/local.sh 8 --config 350m_fp8.json
#   MPRETRAIN=build/program-cuda/mpretrain scripts/launch/local.sh 2 --config 1b_fp8.json --resume auto
#   NNODES=2 NODE_RANK=0 MASTER_ADDR=gpu07 MASTER_PORT=29500 scripts/launch/local.sh 8 --config 1b_fp8.json
#
# The first argument is the number of ranks here, all others are mpretrain's. Each rank gets the variables that torchrun
# sets; they meet at MASTER_PORT + 1 of this machine, by default a port made of this script's process number. Of NNODES
# machines, all with as many ranks, this is number NODE_RANK, counted from 0; they meet at the first, MASTER_ADDR, and
# RUN_ID keeps runs apart that meet at one port. kubernetes.yaml starts it so. SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 to
# this script go to all ranks, which save a checkpoint and end. When one fails, the others are sent SIGTERM, and 30 seconds later
# SIGKILL; the status of the first that failed is this script's. Ranks on the CPU need MPI: mpirun.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

case ${1:-} in -h | --help) usage; exit 0 ;; esac
[[ ${1:-} =~ ^[1-9][0-9]{0,3}$ ]] || die "the first argument is the number of ranks, not '${1:-}'; see --help"
ranks=$1
shift
program=${MPRETRAIN:-$(command -v mpretrain || program_path program-cuda)}
[ -x "$program" ] || die "$program does not exist; build it, or set MPRETRAIN to its path"

nodes=${NNODES:-1} node=${NODE_RANK:-0}
[[ $nodes =~ ^[1-9][0-9]{0,3}$ ]] || die "NNODES=$nodes: expected a number of machines"
if ! [[ $node =~ ^(0|[1-9][0-9]{0,3})$ ]] || [ "$node" -ge "$nodes" ]; then
  die "NODE_RANK=$node of NNODES=$nodes: machines count from 0 to $((nodes - 1))"
fi
run=$$  # tells this run's ranks from those of another
if [ "$nodes" -gt 1 ]; then
  if [ -z "${MASTER_ADDR:-}" ] || [ -z "${MASTER_PORT:-}" ]; then
    die "$nodes machines need an address to meet at: set MASTER_ADDR=machine MASTER_PORT=port"
  fi
  run=${RUN_ID:-mpretrain}
else
  MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-$((20000 + $$ % 10000))}
fi
export MASTER_ADDR MASTER_PORT WORLD_SIZE=$((nodes * ranks)) LOCAL_WORLD_SIZE=$ranks TORCHELASTIC_RUN_ID="local $run"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + ranks - 1) / ranks))}

declare -A left=()  # process number: rank, of those that have not ended
status=0
signal_all() {
  if [ ${#left[@]} -gt 0 ]; then kill -s "$1" "${!left[@]}" 2>/dev/null || true; fi
}

# From here on every job has a process group of its own: a Ctrl-C reaches the ranks once, from here.
set -m
for name in INT TERM USR1 USR2; do
  # shellcheck disable=SC2064
  trap "signal_all $name" $name
done
for ((local_rank = 0; local_rank < ranks; ++local_rank)); do
  rank=$((node * ranks + local_rank))
  RANK=$rank LOCAL_RANK=$local_rank "$program" "$@" </dev/null &
  left[$!]=$rank
done

guard=
rank_failed() {  # PROCESS
  if [ "$status" -ne 0 ]; then return; fi
  status=$2
  say "local.sh: rank ${left[$1]} ended with status $2; stopping the others" >&2
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
