#!/usr/bin/env bash
# Runs one cell of a sweep as an element of a Slurm job array.
#
#   MPRETRAIN=scripts/launch/array_cell.sh sbatch --array=0-9 scripts/launch/slurm.sbatch CELLS
#
# Line SLURM_ARRAY_TASK_ID of the file CELLS, counted from 0, holds as shell words the file that the output is appended
# to, the program and its arguments. The program's status is the element's: 75 means stopped, to be resumed. slurm.sbatch
# starts this once per rank; scripts/reproduce submits it with --launcher slurm.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  "" | -*) die "'${1:-}': expected a file of cells; see --help" ;;
esac
cells=$1
index=${SLURM_ARRAY_TASK_ID:-}
[[ $index =~ ^[0-9]+$ ]] || die "SLURM_ARRAY_TASK_ID is '$index', not a number: this runs in a Slurm job array"
line=$(sed -n "$((index + 1))p" "$cells")
[ -n "$line" ] || die "$cells has no line $((index + 1)) for element $index"
words=()
eval "words=($line)"
exec >>"${words[0]}" 2>&1
if [ "${SLURM_PROCID:-0}" = 0 ]; then
  say "sweep: machine $(run_python "$root/scripts/mpretrain_tools/sweeps/machine.py")"
fi
exec "${words[@]:1}"
