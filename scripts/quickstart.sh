#!/usr/bin/env bash
# From a bare machine to two trained language models: installs what is missing, builds, fetches English text, trains a
# tokenizer, pretrains a nano LLaMA with BF16 weights by AdamW and by M+Adam, and compares them.
#
#   scripts/quickstart.sh            under 15 minutes on 2 cores
#   scripts/quickstart.sh --smoke    the same with little text and few steps, under 3 minutes after the build
#
# Everything is written to quickstart/ (quickstart/smoke/ with --smoke). Finished stages are not repeated: run it again
# and it continues where it stopped.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

work=$root/quickstart
steps=500
tokens_per_step=4096
eval_every=100
eval_tokens=65536
corpus_options=()
case ${1:-} in
  "") ;;
  -h | --help) usage; exit 0 ;;
  --smoke) work=$work/smoke steps=150 tokens_per_step=2048 eval_every=50 eval_tokens=16384 corpus_options=(--small) ;;
  *) die "unknown argument $1; expected nothing, --smoke or --help" ;;
esac
vocab_size=4096
program=$(program_path program)
corpus=$work/corpus tokenizer=$work/tokenizer/tokenizer.model tokens=$work/tokens runs=$work/runs
prompt="The meaning of the word"

stage=start
stage_number=0
report_failure() {
  local code=$?
  if [ $code -eq 75 ]; then
    printf '\nquickstart: stopped in stage: %s; run it again to continue\n' "$stage" >&2
  elif [ $code -ne 0 ]; then
    printf '\nquickstart: FAILED in stage: %s (exit code %d)\n' "$stage" $code >&2
  fi
}
trap report_failure EXIT

# run_stage NAME COMMAND...: announces it, runs it, says how long it took.
run_stage() {
  stage=$1
  stage_number=$((stage_number + 1))
  shift
  local start=$SECONDS
  printf '\n=== %d. %s\n' $stage_number "$stage"
  "$@"
  printf '=== %s: done in %d s (%d s in all)\n' "$stage" $((SECONDS - start)) $SECONDS
}

train_tokenizer() {
  mkdir -p "$(dirname "$tokenizer")"
  once "$work/done/tokenizer" "$program" tokenizer --input "$corpus/*.txt" --vocab-size $vocab_size --output "$tokenizer" \
    --overwrite
}

tokenize() {
  once "$work/done/tokens" "$program" tokenize --input "$corpus/*.txt" --tokenizer "$tokenizer" --output "$tokens" \
    --validation-fraction 0.01 --overwrite
}

train() {  # NAME CONFIG
  "$program" --config "$root/configs/$2" --resume auto --set "name=$1" --set "output_dir=$runs" \
    --set "data.train=$tokens/train_*.bin" --set "data.validation=$tokens/val_*.bin" \
    --set "data.tokenizer=$tokenizer" --set "train.steps=$steps" --set "batch.tokens_per_step=$tokens_per_step" \
    --set "eval.every_steps=$eval_every" --set "eval.tokens=$eval_tokens" --set "checkpoint.every_steps=$eval_every"
}

compare() {
  run_python "$root/scripts/compare_runs.py" --manifest "$tokens/manifest.json" \
    "AdamW=$runs/adamw" "M+Adam=$runs/m_plus_adam" | tee "$work/comparison.txt"
}

draw() {
  run_python "$root/scripts/plot_curves.py" --output "$work/curves.png" --title "nano LLaMA, BF16 weights" \
    "AdamW=$runs/adamw" "M+Adam=$runs/m_plus_adam"
}

newest_checkpoint() { find "$runs/$1/checkpoints" -mindepth 1 -maxdepth 1 -type d -name 'step_????????' | sort | tail -n 1; }

sample() {
  "$program" generate --checkpoint "$(newest_checkpoint m_plus_adam)" --prompt "$prompt" --max-tokens 80 \
    --temperature 0.8 --top-k 50 --seed 1 | tee "$work/sample.txt"
}

mkdir -p "$work"
run_stage "install what is missing" "$root/scripts/install_deps.sh"
run_stage "build" build_program program
run_stage "fetch English text" "$root/scripts/fetch_corpus.sh" "${corpus_options[@]}" "$corpus"
run_stage "train a tokenizer of $vocab_size pieces" train_tokenizer
run_stage "tokenize" tokenize
run_stage "pretrain with AdamW, $steps steps" train adamw nano_bf16_adamw.json
run_stage "pretrain with M+Adam, $steps steps" train m_plus_adam nano_bf16.json
run_stage "generate a sample with the M+Adam model" sample
run_stage "draw the loss curves" draw
run_stage "compare" compare
say
say "models: $runs   curves: $work/curves.png   total: $SECONDS s"
stage=end
