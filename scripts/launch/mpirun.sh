#!/usr/bin/env bash
# Trains with several ranks on this machine's CPU, each on a share of the cores.
#
#   scripts/launch/mpirun.sh 2 --config nano_bf16.json --set train.steps=2000
#   MPRETRAIN=build/program/mpretrain scripts/launch/mpirun.sh 4 --config nano_bf16.json --resume auto
#   MPIRUN_ARGUMENTS='--hostfile hosts' scripts/launch/mpirun.sh 8 --config 60m_bf16.json
#
# The first argument is the number of ranks, all others are mpretrain's. Each rank gets the same number of whole
# cores: ranks that share cores take several times as long. SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 to this script make
# the ranks save the last finished step and end with status 75, which is this script's as well; --resume auto
# continues it. A second SIGINT or SIGTERM ends them within seconds.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

if [ $# -eq 0 ] || [ "$1" = -h ] || [ "$1" = --help ]; then usage; exit 0; fi
ranks=$1
shift
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "the first argument is the number of ranks, not '$ranks'; see --help"
command -v mpirun >/dev/null || die "no mpirun on PATH; scripts/install_deps.sh --mpi installs Open MPI"

program=${MPRETRAIN:-$(command -v mpretrain || program_path program)}
[ -x "$program" ] || die "$program does not exist; build it, or set MPRETRAIN to its path"

cores=$(env -u OMP_NUM_THREADS nproc)  # which would count threads instead
threads=$((cores / ranks))
read -ra more <<<"${MPIRUN_ARGUMENTS:-}"
if [ "$threads" -ge 1 ]; then
  binding=(--map-by "slot:PE=$threads" --bind-to core)
else
  say "$ranks ranks on $cores cores: they share cores, which is only for testing" >&2
  threads=1
  binding=(--oversubscribe --bind-to none)
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$threads}
# In a session of its own: a terminal sends Ctrl-C to everybody, and mpirun answers it by killing the ranks. It ends
# with this script all the same.
apart=(setsid)
if command -v setpriv >/dev/null; then apart+=(setpriv --pdeathsig TERM); fi
"${apart[@]}" mpirun -np "$ranks" "${binding[@]}" -x OMP_NUM_THREADS "${more[@]}" "$program" "$@" &

# mpirun passes SIGUSR1 on, whereas at a SIGTERM it kills the ranks within seconds, in the middle of their saving.
next=USR1
trap 'kill -s "$next" $! 2>/dev/null || true; next=TERM' INT TERM
trap 'kill -s USR1 $! 2>/dev/null || true' USR1 USR2
status=0
wait $! || status=$?
while kill -0 $! 2>/dev/null; do wait $! && status=0 || status=$?; done  # a signal ends a wait early
exit "$status"
