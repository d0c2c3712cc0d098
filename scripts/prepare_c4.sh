#!/usr/bin/env bash
# Turns the published shards of C4/EN into token shards that mpretrain trains on.
#
#   scripts/prepare_c4.sh --source DIRECTORY|URL --tokenizer FILE --output DIRECTORY [--shards N|all]
#
# The source holds c4-train.00000-of-01024.json.gz ... and c4-validation.00000-of-00008.json.gz ..., directly or in
# en/. First prints how much it will read and whether the disk has room. Stop it at any time: the same command
# continues, and finished shards are not made again. `--help` lists every option and the exit statuses.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

program=$(program_path program)
[ -x "$program" ] || program=$(command -v mpretrain || say "$program")

# exec: who ends this script ends the work.
export PYTHONPATH=$root/scripts${PYTHONPATH:+:$PYTHONPATH}
exec "$(python_path)" -B -m mpretrain_tools.corpus.prepare_c4 --program "$program" "$@"
