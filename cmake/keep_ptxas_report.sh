#!/bin/sh
# A launcher of nvcc: what ptxas says of registers, stack and spills goes to <object>.ptxas, the rest to the terminal.
# Used as: keep_ptxas_report.sh [another launcher] nvcc ... -o OBJECT ...
object='' previous=''
for argument in "$@"; do
  if [ "$previous" = -o ]; then object=$argument; fi
  previous=$argument
done
if [ -z "$object" ]; then exec "$@"; fi

rm -f "$object.ptxas"
"$@" 2>"$object.messages"
status=$?
of_ptxas='^ptxas info|bytes stack frame, .* bytes spill'
grep -vE "$of_ptxas" "$object.messages" >&2
if [ $status -eq 0 ]; then grep -E "$of_ptxas" "$object.messages" >"$object.ptxas"; fi
rm -f "$object.messages"
exit $status
