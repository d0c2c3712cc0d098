#!/usr/bin/env bash
# Makes the tokens that the examples train on: English text into corpus/, a tokenizer and token shards into data/own_text/.
#
#   examples/data.sh
#
# Takes mpretrain from PATH. Does nothing if the tokens are there already.
set -euo pipefail
case ${1:-} in
  "") ;;
  -h | --help) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  *) printf 'data.sh: error: unknown argument %s; expected nothing or --help\n' "$1" >&2; exit 1 ;;
esac
cd "$(dirname "$0")/.."

if [ -e data/own_text/manifest.json ]; then
  echo "data/own_text has tokens already"
  exit
fi
scripts/fetch_corpus.sh corpus
mkdir -p data
mpretrain tokenizer --input 'corpus/*.txt' --vocab-size 2048 --output data/own_text.model --overwrite
mpretrain tokenize --input 'corpus/*.txt' --tokenizer data/own_text.model --output data/own_text --validation-fraction 0.01 --overwrite
