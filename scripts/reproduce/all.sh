#!/usr/bin/env bash
# Reproduces every table and figure of the paper at one scale: builds the program if there is none, makes tokens for pico and
# nano, tunes, runs every artefact, and writes an index of them. A table that fails is reported at the end; the others are still made.
#
#   scripts/reproduce/all.sh --scale pico                    many hours on 2 cores
#   scripts/reproduce/all.sh --scale pico --quick            a fiftieth of the length: a check that all works, under 10 minutes
#   scripts/reproduce/all.sh --scale pico --smoke            shorter still, with little text, under 3 minutes
#   scripts/reproduce/all.sh --scale 350m --tokens /data/c4 --work /scratch/runs --launcher torchrun:8
#
#   --scale S          pico, nano, 60m, 130m, 350m or 1b (default: pico)
#   --tokens DIR       output directory of `mpretrain tokenize` (default: English text is fetched for pico and nano)
#   --corpus DIR       directory of text, *.txt, to use instead of fetching it; never written to
#   --work DIR         directory for runs and text (default: runs/reproduce)
#   --output DIR       directory for tables and figures (default: results/<scale>, _quick or _smoke appended)
#   --program FILE     mpretrain executable (default: that of the build, built if missing)
#   --tune-budgets L   budgets to tune, "1" to "1 2 4 8", or "" for the shipped values (default: 1)
#   anything else      is passed to all scripts: --jobs, --threads, --launcher, --seeds, ...
#
# It may be stopped at any time; started again, it continues: finished runs are recorded in <output>/runs.csv.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/.. source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
here=$root/scripts/reproduce

# name | what the paper has | file. In the order in which they are made: what takes no training first, what wants an idle
# machine last.
artefacts='
memory_table       | Memory table
architecture_table | Architecture table
toy_figures        | Matrix-fitting figures
main_table         | Main table, 1x
apollo_table       | Apollo-E tables
branch_weighting   | Block-scale branch weighting of NVFP4
lr_sensitivity     | Learning-rate sensitivity figure
chinchilla_figure  | Scaling figure, 1x to 8x
tuning_tables      | Tables of hyperparameters and sweeps
runtime_table      | Runtime tables
'

scale=pico
mode=full
tokens=
corpus=
work=$PWD/runs/reproduce
output=
program=
tune_budgets=1
more=()

# Ends this script with status 2 where an option is not one of those that all artefacts take.
check_options() {
  run_python -B - "$@" <<'PARSE' || exit $?
from mpretrain_tools.reproduce.artefact import parser
options = parser("What is not of all.sh itself is handed to all scripts:")
options.prog, options.allow_abbrev = "all.sh", False
options.parse_args()
PARSE
}

while [ $# -gt 0 ]; do
  case $1 in --?*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;; esac
  case $1 in
    --scale | --tokens | --corpus | --work | --output | --program | --tune-budgets)
      [ $# -ge 2 ] || die "$1 needs a value"
      case $1 in
        --scale) scale=$2 ;; --tokens) tokens=$2 ;; --corpus) corpus=$2 ;; --work) work=$2 ;; --output) output=$2 ;;
        --program) program=$2 ;; --tune-budgets) tune_budgets=$2 ;;
      esac
      shift ;;
    --quick | --smoke) mode=${1#--} ;;
    -h | --help) usage; exit 0 ;;
    *) more+=("$1") ;;
  esac
  shift
done
check_options "${more[@]}"
case $scale in
  pico | nano | 60m | 130m | 350m | 1b) ;;
  *) die "--scale $scale: expected pico, nano, 60m, 130m, 350m or 1b" ;;
esac
case $scale in
  pico | nano) ;;
  *) [ -n "$tokens" ] || die "--tokens is missing: --scale $scale trains on C4, and scripts/prepare_c4.sh makes its tokens" ;;
esac
[ -z "$tokens" ] || [ -z "$corpus" ] || die "--tokens $tokens and --corpus $corpus: tokens are made of text already; give one of them"
# Beyond nano the runs want a GPU.
preset=program
case $scale in
  pico | nano) ;;
  *) if command -v nvcc >/dev/null; then preset="program-cuda"; fi ;;
esac
is_short() { [ "$mode" != full ]; }

short=()
text_options=()
tune_options=()
tuning_output=()
runtime_options=()
if is_short; then
  output=${output:-$PWD/results/${scale}_$mode}
  # Short runs find no rates that the other tables should take: their tuning stays apart.
  short=(--quick) tune_options=(--runs 6) tune_budgets=1 tuning_output=(--output "$output/tuning_of_short_runs")
fi
output=${output:-$PWD/results/$scale}
if [ "$mode" = smoke ]; then
  export MPT_QUICK_BUDGET=0.004
  text_options=(--small) tune_options=(--runs 1) runtime_options=(--rounds 1 --steps 8 --skip 2)
fi

failed=()
stage_number=0
# stage NAME COMMAND...: announces it, runs it, says how long it took; remembers a failure and goes on.
stage() {
  local name=$1 start=$SECONDS code=0 ending="done"
  stage_number=$((stage_number + 1))
  shift
  printf '\n=== %d. %s\n' $stage_number "$name"
  "$@" || code=$?
  if [ $code -ge 128 ]; then die "$name was stopped (status $code); start it again with the same arguments to continue"; fi
  if [ $code -ne 0 ]; then failed+=("$name") ending="FAILED, status $code,"; fi
  printf '=== %s: %s in %d s (%d s in all)\n' "$name" "$ending" $((SECONDS - start)) $SECONDS
}

# must NAME COMMAND...: a stage without which nothing else can be done.
must() {
  stage "$@"
  if [ ${#failed[@]} -ne 0 ]; then die "\"$1\" failed, and everything else depends on it"; fi
}

build() {
  "$root/scripts/install_deps.sh" && build_program "$preset"
}

# script NAME ARGUMENTS...: with what is the same for all.
script() {
  local name=$1
  shift
  run_python "$root/scripts/reproduce.py" "$name" --scale "$scale" --program "$program" --tokens "$tokens" --work "$work/$scale" \
    --output "$output" "${short[@]}" "${more[@]}" "$@"
}

tune() {
  local budget
  for budget in $tune_budgets; do
    stage "tune at budget $budget" script tune --budget "$budget" "${tune_options[@]}" "${tuning_output[@]}"
  done
}

names() { sed -n 's/^\([a-z_]*\) *| .*/\1/p' <<<"$artefacts"; }

# What there is of an artefact, as links; figures are there as PDF, too.
files_of() {  # NAME DIRECTORY, relative to the output
  local file found=
  for file in "$output/$2$1"{.md,.csv,*.png}; do
    if [ -e "$file" ]; then found+="[$(basename "$file")](${file#"$output/"}) "; fi
  done
  say "${found:-not made}"
}

write_index() {
  local name what directory
  {
    say "# Tables and figures of the paper, $scale"
    say
    if is_short; then say "**Short runs: they show that everything works and say nothing about optimizers.**"; say; fi
    say "| the paper's | script | files |"
    say "|---|---|---|"
    while IFS='|' read -r name what; do
      name=${name// /}
      if [ -z "$name" ]; then continue; fi
      directory=
      if [ "$name" = tuning_tables ] && is_short; then directory=tuning_of_short_runs/; fi
      say "|$what | \`reproduce.py $name\` | $(files_of "$name" "$directory") |"
    done <<<"$artefacts"
    say
    say "Runs and what they came to: [runs.csv](runs.csv)."
    if [ ${#failed[@]} -ne 0 ]; then say; say "**Failed: $(IFS=,; say "${failed[*]}").**"; fi
  } >"$output/README.md"
}

mkdir -p "$work" "$output"
if [ -z "$program" ]; then
  program=$(program_path "$preset")
  [ -x "$program" ] || must "build" build
fi
if [ -z "$tokens" ]; then
  must "make tokens" "$here/prepare_text.sh" --scale "$scale" --program "$program" "${text_options[@]}" \
    ${corpus:+--corpus "$corpus"} "$work/text"
  tokens=$work/text/$scale${text_options:+_small}
fi
tune
while read -r name; do
  options=()
  case $name in
    tuning_tables) options=("${tuning_output[@]}") ;;
    runtime_table) options=("${runtime_options[@]}") ;;
  esac
  stage "$name" script "$name" "${options[@]}" </dev/null
done < <(names)
write_index
say
say "tables and figures: $output/README.md   total: $SECONDS s"
if [ ${#failed[@]} -ne 0 ]; then
  printf 'all.sh: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
