#!/usr/bin/env bash
# Turns the published shards of C4/EN into token shards that mpretrain trains on.
#
#   scripts/prepare_c4.sh --source DIRECTORY|URL --tokenizer FILE --output DIRECTORY [--shards N|all]
#
# The source holds c4-train.00000-of-01024.json.gz ... and c4-validation.00000-of-00008.json.gz ..., in itself or in its
# folder en/. First says what it will take and whether the disk has it. Stop it at any time: the same command goes on,
# and finished shards are not done again. `--help` lists every option and the exit statuses.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

program=$(program_path program)
[ -x "$program" ] || program=$(command -v mpretrain || say "$program")

# exec: who ends this script ends the work.
exec "$(python_path)" -B "$root/scripts/prepare_c4.py" --program "$program" "$@"
