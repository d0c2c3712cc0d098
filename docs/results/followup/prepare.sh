#!/usr/bin/env bash
# The text of these studies: prepare_text.sh's, with its paragraphs shuffled, so that the shards of held-out text are alike,
# and twice as much of it held out. Values are chosen on val_000000.bin and reported on val_000001.bin.
#
#   docs/results/followup/prepare.sh [--program FILE] DIRECTORY      leaves the tokens in DIRECTORY/followup
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
program=mpretrain
if [ "${1:-}" = --program ]; then program=$2; shift 2; fi
directory=${1:?expected: prepare.sh [--program FILE] DIRECTORY}

"$root/scripts/reproduce/prepare_text.sh" --scale pico --program "$program" "$directory"
mkdir -p "$directory/shuffled"
python3 - "$directory" <<'P'
import pathlib, random, sys
directory = pathlib.Path(sys.argv[1])
texts = [path.read_text(encoding="utf-8") for path in sorted(directory.glob("corpus/*.txt"))]
paragraphs = [part.strip("\n") for text in texts for part in text.split("\n\n") if part.strip()]
random.Random(1).shuffle(paragraphs)
(directory / "shuffled/text.txt").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
P
"$program" tokenize --input "$directory/shuffled/text.txt" --tokenizer "$directory/tokenizers/pico.model" \
  --output "$directory/followup" --validation-fraction 0.02 --shard-tokens 250000 --overwrite
