#!/usr/bin/env bash
# Starts mpretrain and kills it (SIGKILL) a second after a directory has appeared, a checkpoint's for example.
#
#   examples/resume/killed_at.sh DIRECTORY ARGUMENTS-OF-MPRETRAIN...
#
# Takes mpretrain from PATH. The exit status is mpretrain's: 137 once it is killed.
set -uo pipefail
case ${1:--h} in
  -h | --help) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac
directory=$1
shift
mpretrain "$@" &
until [ -d "$directory" ] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
sleep 1
kill -KILL $! 2>/dev/null
wait $!
