#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run on two nodes of two ranks with parallel.tp = 2: ranks of a node share every matrix, and nothing but weights and
# gradients of the parts that both nodes have shards of goes from node to node. A rank that stops in the midst of a step
# is named with the collective that the others wait for.
#   tensor_parallel_test.sh FINETUNE FOLDER mpirun|slurm
# Exit code 77: this machine cannot make nodes; the last line says why.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=expect.sh
. "$here/expect.sh"
finetune=$1
folder=$2
launcher=$3
num_steps=10
ranks_per_node=2

# train NAME KEYS -- LAUNCH...: the same deck through any launcher.
train() {
  local name=$1 keys=()
  shift
  while [ "$1" != -- ]; do
    keys+=("$1")
    shift
  done
  shift
  (cd "$here/../.." && "$@" "$finetune" inputs/smoke/pretraining.toml train.max_steps=$num_steps \
    train.output="$folder/$name" "${keys[@]}") >"$folder/$name.log" 2>&1
}

rm -rf "$folder"
mkdir -p "$folder"
two_nodes=("$here/two_nodes.sh" --launcher "$launcher" --ranks-per-node "$ranks_per_node" --traffic "$folder/traffic" --)
code=0
train two_nodes parallel.tp=2 -- "${two_nodes[@]}" || code=$?
if [ $code -ne 0 ]; then
  cat "$folder/two_nodes.log"
  exit $code
fi
train one_rank -- "$here/../support/mpirun.sh" 1

log=$folder/two_nodes.log
expect "ranks of a node share matrices" grep -q 'matrices shared by 2 ranks each: (0,1) (2,3)' "$log"
losses() { sed -n 's/.*"loss": \([^,]*\).*/\1/p' "$folder/$1/metrics.jsonl"; }
expect "$num_steps losses are there" test "$(losses two_nodes | wc -l)" -eq $num_steps
# shellcheck disable=SC2317 # expect calls it
are_close() {
  awk 'NR == FNR { of_one[FNR] = $1; next }
    { d = $1 - of_one[FNR]; if (d < 0) d = -d; if (d > 1e-4 * of_one[FNR]) exit 1 }' "$1" "$2"
}
expect "they are those of one rank" are_close <(losses one_rank) <(losses two_nodes)

# Of its last report: what the first rank sends over each axis in a step, and of it to the other node.
sent() { sed -n "s/.*\"sent_bytes\": {[^}]*\"$1\": \([0-9]*\).*/\1/p" "$folder/two_nodes/metrics.jsonl" | tail -n 1; }
expect "activations travel" test "$(sent tp)" -gt 0
expect "inside nodes" test "$(sent to_other_nodes)" -eq "$(sent fsdp)"
least=$(($(sent fsdp) * ranks_per_node * num_steps))
while read -r node bytes; do
  echo "$node sent $bytes bytes; its ranks' shards are $least"
  expect "shards went over the cable" test "$bytes" -ge $least
  # Packet headers, the launcher's messages, losses, norms, data; the deck's model is small.
  expect "and little else" test "$bytes" -le $((least + least / 2))
done <"$folder/traffic"
expect "both nodes were watched" test "$(wc -l <"$folder/traffic")" -eq 2

code=0
FINETUNE_FAULT='step.bwd:1:3:stop' train stopped parallel.tp=2 train.hang_timeout_s=10 -- "${two_nodes[@]}" || code=$?
expect "a rank that stops ends the job" test $code -ne 0
expect "is named, with its node" grep -Eq 'rank 1 .*node1' "$folder/stopped.log"
# Within a moment of each other: the rank beside it in their product, and the next block's weights, gathered ahead. The one
# that has waited for the whole timeout when somebody looks is told of.
expect "and so is what the others wait for" grep -Eq ' late in [a-z_]+ on (tp|fsdp)' "$folder/stopped.log"

[ $failures -eq 0 ] || tail -n 30 "$log" "$folder/stopped.log"
exit $((failures > 0))
