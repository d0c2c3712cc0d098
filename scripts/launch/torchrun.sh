#!/usr/bin/env bash
# Trains with one rank per GPU of this machine, or with RANKS ranks on its GPUs or its CPU; on several machines, run it on
# each of them at the same time.
#
#   scripts/launch/torchrun.sh --config 350m_fp8.json
#   RANKS=2 scripts/launch/torchrun.sh --config nano_bf16.json
#   NNODES=2 MASTER=gpu07:29500 scripts/launch/torchrun.sh --config 1b_fp8.json --resume auto
#
# All arguments are mpretrain's. RANKS (default: the GPUs that nvidia-smi lists) and NNODES (default 1) set the number of
# ranks; MASTER sets the machine and port where they meet: torchrun listens at that port, rank 0 at the next one, or at
# MPT_MASTER_PORT. torchrun starts the ranks and ends all when one fails; nothing else of PyTorch is used. With RESTARTS=N
# it then starts them again up to N times, for which --resume auto is needed; NNODES=1:2 lets it go on with fewer machines.
# A signal to torchrun reaches the ranks, which have torchrun's 30 seconds to save. A rank that was stopped ends with
# status 75; torchrun ends with 1 whatever the status is, and names it in its report.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

if [ $# -eq 0 ] || [ "$1" = -h ] || [ "$1" = --help ]; then usage; exit 0; fi
command -v torchrun >/dev/null || die "no torchrun on PATH; it comes with PyTorch. mpretrain launch, srun and mpirun start ranks as well"

ranks=${RANKS:-$({ nvidia-smi -L 2>/dev/null || true; } | wc -l)}
[ "$ranks" -ge 1 ] || die "nvidia-smi lists no GPU here; set RANKS to the number of ranks on this machine"
program=${MPRETRAIN:-$(command -v mpretrain || program_path program-cuda)}
[ -x "$program" ] || program=$(program_path program)
[ -x "$program" ] || die "$program does not exist; build it, or set MPRETRAIN to its path"
nodes=${NNODES:-1}

if [ "$nodes" = 1 ]; then
  meeting=(--standalone)
else
  [ -n "${MASTER:-}" ] || die "$nodes machines need an address to meet at: set MASTER=machine:port"
  meeting=(--rdzv-backend c10d --rdzv-endpoint "$MASTER" --rdzv-id "${RUN_ID:-mpretrain}")
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + ranks - 1) / ranks))}
exec torchrun --nnodes "$nodes" --nproc-per-node "$ranks" --max-restarts "${RESTARTS:-0}" "${meeting[@]}" --no-python \
  "$program" "$@"
