#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run on two nodes of two ranks splits the model inside each node, sends nothing but gradient shards from
# node to node, and ends with the weights of the same run on one node.
#   two_nodes_test.sh FINETUNE FOLDER mpirun|slurm
# Exit code 77: this machine cannot make nodes; the last line says why.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=expect.sh
. "$here/expect.sh"
finetune=$1
folder=$2
launcher=$3
num_steps=20
ranks_per_node=2

# train NAME LAUNCH...: the same deck through any launcher. Sums in fixed point, so that bits do not depend on
# who adds what.
train() {
  local name=$1
  shift
  (cd "$here/../.." && "$@" "$finetune" inputs/smoke/pretraining.toml train.max_steps=$num_steps \
    train.determinism=topology parallel.dp_shard=$ranks_per_node train.output="$folder/$name") >"$folder/$name.log" 2>&1
}

export_weights() {
  "$finetune" export "$folder/$1" "$folder/$1.model" >/dev/null
}

rm -rf "$folder"
mkdir -p "$folder"
two_nodes=("$here/two_nodes.sh" --launcher "$launcher" --ranks-per-node "$ranks_per_node" --traffic "$folder/traffic" --)
code=0
train two_nodes "${two_nodes[@]}" || code=$?
if [ $code -ne 0 ]; then
  cat "$folder/two_nodes.log"
  exit $code
fi
train one_node "$here/../support/mpirun.sh" $((2 * ranks_per_node))

log=$folder/two_nodes.log
expect "both nodes are found" grep -q '4 ranks on 2 nodes: node1 (0,1) node2 (2,3);' "$log"
expect "a copy of the model lies inside a node" grep -Eq '^ *sharding +HYBRID_SHARD: 2 copies of the model, each over 2 ranks$' "$log"

export_weights one_node
export_weights two_nodes
expect "the weights are those of one node" \
  cmp "$folder/one_node.model/model.safetensors" "$folder/two_nodes.model/model.safetensors"
losses() { sed -n 's/.*"loss": \([^,]*\).*/\1/p' "$folder/$1/metrics.jsonl"; }
expect "so are $num_steps losses" test "$(losses one_node)" = "$(losses two_nodes)"
expect "which are there" test "$(losses two_nodes | wc -l)" -eq $num_steps

# All ranks hold gradient shards of one size.
shard_bytes=$(sed -n 's/.*"dp_replicate": \([0-9]*\).*/\1/p' "$folder/two_nodes/metrics.jsonl" | tail -n 1)
least=$((shard_bytes * ranks_per_node * num_steps))
while read -r node bytes; do
  echo "$node sent $bytes bytes; its ranks' gradient shards are $least"
  expect "gradient shards went over the cable" test "$bytes" -ge $least
  # Packet headers, the launcher's messages, losses and norms.
  expect "and little else" test "$bytes" -le $((least + least / 2))
done <"$folder/traffic"
expect "both nodes were watched" test "$(wc -l <"$folder/traffic")" -eq 2

# All ranks fail at once, which each says once, and MPI does not say again for each of them.
code=0
FINETUNE_FAULT='step.fwd:*:2:exc' train failed "${two_nodes[@]}" || code=$?
expect "ranks that fail end the job" test $code -ne 0
expect "which is said" grep -q '^error: rank [0-3] on node[12]: planted fault at step.fwd' "$folder/failed.log"
expect "and MPI's own notice comes once at most" test "$(grep -c 'MPI_ABORT was invoked' "$folder/failed.log")" -le 1

[ $failures -eq 0 ] || cat "$log"
exit $((failures > 0))
