#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# finetune evaluate and finetune generate on two nodes of two ranks, in a Slurm: the numbers and the texts of one rank,
# also when all ranks are killed on the way and the same command goes on.
#   texts_test.sh FINETUNE FOLDER
# Exit code 77: this machine cannot make nodes; the last line says why.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
top=$(cd "$here/../.." && pwd -P)
# shellcheck source=expect.sh
. "$here/expect.sh"
finetune=$1
folder=$2
model=$top/inputs/quickstart/model

rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
for i in $(seq 40); do
  printf '{"id": %d, "prompt": "The colour of the %s is"}\n' "$i" "$(printf 'ring hen lamp tree' | cut -d ' ' -f $((i % 4 + 1)))"
done >prompts.jsonl

two_nodes=("$here/two_nodes.sh" --launcher slurm --)
write() { # write OUT LAUNCH...
  local out=$1
  shift
  "$@" "$finetune" generate "$model" --file prompts.jsonl -o "$out" --dtype fp32 --max-tokens 24 --temperature 0.8 --seed 3
}
ask() { # ask OUT LAUNCH...
  local out=$1
  shift
  "$@" "$finetune" evaluate "$model" --tasks "$top"/tests/golden/tasks/{choices,questions,texts}.toml --dtype fp32 -o "$out"
}
one=("$here/../support/mpirun.sh" 1)
write one.jsonl "${one[@]}" >one.log 2>&1
ask one "${one[@]}" >>one.log 2>&1

code=0
write two.jsonl "${two_nodes[@]}" >two.log 2>&1 || code=$?
if [ $code -ne 0 ]; then
  cat two.log
  exit $code
fi
ask two "${two_nodes[@]}" >>two.log 2>&1 || code=$?
expect "evaluate ends well on two nodes" test $code -eq 0
expect "texts of two nodes are those of one rank" cmp one.jsonl two.jsonl
# Seconds differ.
numbers() { grep -v '"seconds' "$1/samples.jsonl"; }
expect "so are samples" cmp <(numbers one) <(numbers two)

# All ranks at once, as a node that dies takes them, when the first answers are there.
write killed.jsonl "${two_nodes[@]}" >killed.log 2>&1 &
# However long it takes to come to them: it ends by itself.
until [ -s killed.jsonl ] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
pkill -KILL -f "$finetune generate .*-o killed.jsonl" || true
wait || true
expect "a part is there" test -s killed.jsonl
write killed.jsonl "${two_nodes[@]}" >>killed.log 2>&1 || code=$?
expect "the same command goes on" test $code -eq 0
expect "to the same texts" cmp one.jsonl killed.jsonl
[ $failures -eq 0 ] || tail -n 30 two.log killed.log
exit $((failures > 0))
