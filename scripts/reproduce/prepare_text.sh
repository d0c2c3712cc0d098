#!/usr/bin/env bash
# Makes the tokens that runs of pico and nano train on: English text of documentation packages, a tokenizer of the scale's
# vocabulary, token shards with 1 % of the documents held out.
#
#   scripts/reproduce/prepare_text.sh --scale pico DIRECTORY            50 MB of text
#   scripts/reproduce/prepare_text.sh --scale pico --small DIRECTORY    11 MB, to try things out
#
# The tokens land in DIRECTORY/<scale> (DIRECTORY/<scale>_small), the text in DIRECTORY/corpus (DIRECTORY/corpus_small) or
# where --corpus DIRECTORY says; *.txt that are there already are used. --program names the program, else the newest build's.
# What is done is not done again. Other scales train on C4: scripts/prepare_c4.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/.. source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

scale=pico
suffix=
corpus=
directory=
program=$root/build/$(present_preset)/mpretrain
fetch_options=()
while [ $# -gt 0 ]; do
  case $1 in
    --scale | --corpus | --program)
      [ $# -ge 2 ] || die "$1: a value is missing"
      case $1 in --scale) scale=$2 ;; --corpus) corpus=$2 ;; --program) program=$2 ;; esac
      shift ;;
    --small) suffix=_small fetch_options=(--small) ;;
    -*) die "unknown argument $1; expected --scale, --small, --corpus, --program or a directory" ;;
    *) [ -z "$directory" ] || die "two directories: $directory and $1"
       directory=$1 ;;
  esac
  shift
done
[ -n "$directory" ] || die "expected: prepare_text.sh [--scale pico|nano] [--small] DIRECTORY"
command -v "$program" >/dev/null || die "$program: no program there; build it or give --program"
case $scale in
  pico) vocab_size=512 ;;
  nano) vocab_size=4096 ;;
  *) die "--scale $scale: expected pico or nano; scripts/prepare_c4.sh makes the tokens of the others" ;;
esac
corpus=${corpus:-$directory/corpus$suffix}
tokens=$directory/$scale$suffix
tokenizer=$directory/tokenizers/$scale$suffix.model

"$root/scripts/fetch_corpus.sh" "${fetch_options[@]}" "$corpus"
mkdir -p "$(dirname "$tokenizer")"
once "$tokens.done/tokenizer" "$program" tokenizer --input "$corpus/*.txt" --vocab-size $vocab_size --output "$tokenizer"
once "$tokens.done/tokens" "$program" tokenize --input "$corpus/*.txt" --tokenizer "$tokenizer" --output "$tokens" \
  --validation-fraction 0.01 --overwrite
say "tokens: $tokens"
