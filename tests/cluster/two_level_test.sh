#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# FULL_SHARD on two nodes of several ranks sends every gathered byte, and every sum of integers, from node to node once:
# counted by the ranks, and by the nodes' network devices. The weights are those of one node.
#   two_level_test.sh FINETUNE FOLDER
# Exit code 77: this machine cannot make nodes; the last line says why.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=expect.sh
. "$here/expect.sh"
# shellcheck source=model_deck.sh
. "$here/model_deck.sh"
root=$(cd "$here/../.." && pwd -P)
finetune=$1
folder=$2
num_steps=4
settings=(parallel.sharding=FULL_SHARD train.determinism=topology checkpoint.save_steps=0)

# train NAME LAUNCH...
train() {
  local name=$1
  shift
  "$@" "$finetune" "$folder/deck.toml" "${settings[@]}" train.output="$folder/$name" >"$folder/$name.log" 2>&1
}

# number NAME FIELD: bytes a step, of the first rank.
number() {
  sed -n "s/.*\"$2\": \([0-9]*\).*/\1/p" "$folder/$1/metrics.jsonl" | tail -n 1
}

losses() {
  sed -n 's/.*"loss": \([^,]*\).*/\1/p' "$folder/$1/metrics.jsonl"
}

rm -rf "$folder"
mkdir -p "$folder"
write_deck
for ranks in 2 3,1; do
  name=nodes_of_${ranks/,/_}
  code=0
  train "$name" "$here/two_nodes.sh" --ranks-per-node "$ranks" --traffic "$folder/traffic" -- || code=$?
  if [ $code -ne 0 ]; then
    cat "$folder/$name.log"
    exit $code
  fi
  [ -d "$folder/one_node" ] || train one_node "$here/../support/mpirun.sh" 4
  expect "the losses are those of one node" test "$(losses one_node)" = "$(losses "$name")"
  expect "which are there" test "$(losses "$name" | wc -l)" -eq $num_steps
  # On one node each rank sends its part of a gather, and a term of each sum, to three others. On two nodes a part,
  # and a sum, goes to the other node.
  part=$(($(number one_node fsdp) / 3))
  expect "the first rank counts one part a collective" test "$(number "$name" to_other_nodes)" -eq $part
  counted=$((4 * part * num_steps))
  sent=$(awk '{ sum += $2 } END { print sum }' "$folder/traffic")
  echo "both nodes sent $sent bytes; their ranks count $counted"
  expect "the nodes sent what their ranks count" test "$sent" -ge $counted
  # Packet headers, and what the launcher and set-up send.
  expect "and little else" test "$sent" -le $((counted + counted / 25 + 1000000))
done

[ $failures -eq 0 ] || cat "$folder"/*.log
exit $((failures > 0))
