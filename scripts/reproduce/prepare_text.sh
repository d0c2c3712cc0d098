#!/usr/bin/env bash
# Makes the tokens that runs of pico and nano train on: English text of documentation packages, a tokenizer of the scale's
# vocabulary, token shards with 1 % of the documents held out.
#
#   scripts/reproduce/prepare_text.sh --scale pico DIRECTORY                  50 MB of text
#   scripts/reproduce/prepare_text.sh --scale pico --small DIRECTORY          11 MB, for trials
#   scripts/reproduce/prepare_text.sh --scale pico --corpus TEXT DIRECTORY    your own text, TEXT/*.txt
#
#   --scale S        pico or nano (default: pico)
#   --small          fetch 11 MB of text rather than 50 MB
#   --corpus DIR     directory of text, *.txt, to use instead of fetching it; never written to
#   --shuffled       shuffle the paragraphs and hold out 2 % in shards of 250,000 tokens, which are then alike: values can be
#                    chosen on one and reported on another
#   --program FILE   mpretrain executable (default: that of the build)
#
# The tokens land in DIRECTORY/<scale> (DIRECTORY/<scale>_small, DIRECTORY/<scale>_shuffled), fetched text in DIRECTORY/corpus (DIRECTORY/corpus_small). Finished
# steps are not repeated. Other scales train on C4: scripts/prepare_c4.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/.. source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

scale=pico
suffix=
shuffled=
corpus=
directory=
program=$(program_path program)
fetch_options=()
while [ $# -gt 0 ]; do
  case $1 in
    --scale | --corpus | --program)
      [ $# -ge 2 ] || die "$1 needs a value"
      case $1 in --scale) scale=$2 ;; --corpus) corpus=$2 ;; --program) program=$2 ;; esac
      shift ;;
    --small) suffix=_small fetch_options=(--small) ;;
    --shuffled) shuffled=_shuffled ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown argument $1; expected --scale, --small, --corpus, --program, --help or a directory" ;;
    *) [ -z "$directory" ] || die "two directories: $directory and $1"
       directory=$1 ;;
  esac
  shift
done
[ -n "$directory" ] || die "expected: prepare_text.sh [--scale pico|nano] [--small] DIRECTORY"
command -v "$program" >/dev/null || die "$program: no such program; build it or give --program"
case $scale in
  pico) vocab_size=512 ;;
  nano) vocab_size=4096 ;;
  *) die "--scale $scale: expected pico or nano; scripts/prepare_c4.sh makes the tokens of the others" ;;
esac
tokens=$directory/$scale$suffix
tokenizer=$directory/tokenizers/$scale$suffix.model

if [ -n "$corpus" ]; then
  compgen -G "$corpus/*.txt" >/dev/null ||
    die "--corpus $corpus: no *.txt there; name a directory of text files, or omit --corpus to fetch text"
else
  corpus=$directory/corpus$suffix
  "$root/scripts/fetch_corpus.sh" "${fetch_options[@]}" "$corpus"
fi
mkdir -p "$(dirname "$tokenizer")"
once "$tokens.done/tokenizer" "$program" tokenizer --input "$corpus/*.txt" --vocab-size $vocab_size --output "$tokenizer" \
  --overwrite
held_out=(--validation-fraction 0.01)
if [ -n "$shuffled" ]; then
  tokens+=$shuffled
  text=$directory/corpus$suffix$shuffled
  mkdir -p "$text"
  python3 - "$corpus" "$text/text.txt" <<'P'
import pathlib, random, sys
corpus, target = map(pathlib.Path, sys.argv[1:])
texts = [path.read_text(encoding="utf-8") for path in sorted(corpus.glob("*.txt"))]
paragraphs = [part.strip("\n") for text in texts for part in text.split("\n\n") if part.strip()]
random.Random(1).shuffle(paragraphs)
target.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
P
  corpus=$text
  held_out=(--validation-fraction 0.02 --shard-tokens 250000)
fi
once "$tokens.done/tokens" "$program" tokenize --input "$corpus/*.txt" --tokenizer "$tokenizer" --output "$tokens" \
  "${held_out[@]}" --overwrite
say "tokens: $tokens"
