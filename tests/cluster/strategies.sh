#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a model of 4.8 million parameters on two nodes of two ranks with every sharding strategy, over a free
# cable and a shaped one, and prints what a step took and sent as a table.
#   strategies.sh [FINETUNE [FOLDER]]      build/finetune and build/tests/strategies if not said
# RATES="free 1gbit" and STRATEGIES="FULL_SHARD ..." choose rows; STEPS=24; two_nodes.sh says what it needs.
# FOLDER keeps the deck, deck.toml, and a line "RATE SHARDING MEDIAN_MS LEAST_MS NODE_TO_NODE_MB" for each row, times.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=model_deck.sh
. "$here/model_deck.sh"
root=$(cd "$here/../.." && pwd -P)
finetune=$(realpath "${1:-$root/build/finetune}")
folder=$(realpath -m "${2:-$root/build/tests/strategies}")
read -ra rates <<<"${RATES:-free 1gbit}"
read -ra strategies <<<"${STRATEGIES:-FULL_SHARD SHARD_GRAD_OP HYBRID_SHARD NO_SHARD}"
num_steps=${STEPS:-24}

# Median and least of the lines' numbers, in milliseconds.
median_and_least_ms() {
  sort -g | awk '{ v[NR] = 1000 * $1 }
    END { printf "%.1f %.1f\n", (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2, v[1] }'
}

mb() {
  awk -v bytes="$1" 'BEGIN { printf "%.2f", bytes / 1e6 }'
}

# number NAME: its last value in metrics.jsonl.
number() {
  sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$folder/output/metrics.jsonl" | tail -n 1
}

run_one() {
  local rate=$1 strategy=$2 shape=() cable median least
  [ "$rate" = free ] || shape=(--rate "$rate")
  rm -rf "$folder/output"
  if ! "$here/two_nodes.sh" "${shape[@]}" --traffic "$folder/traffic" -- \
    "$finetune" "$folder/deck.toml" parallel.sharding="$strategy" >"$folder/log" 2>&1; then
    cat "$folder/log" >&2
    return 1
  fi
  # The first step allocates.
  read -r median least < <(sed -n 's/.*"step_s": \([^,}]*\).*/\1/p' "$folder/output/metrics.jsonl" |
    tail -n +2 | median_and_least_ms)
  cable=$(awk -v steps="$num_steps" '{ sum += $2 } END { print sum / NR / steps }' "$folder/traffic")
  echo "$rate $strategy $median $least $(mb "$cable")" >>"$folder/times"
  printf '| %-6s | %-13s | %8s | %9s | %8s | %16s | %16s |\n' "$rate" "$strategy" "$median" "$least" \
    "$(mb "$(number fsdp)")" "$(mb "$(number dp_replicate)")" "$(mb "$cable")"
}

write_deck
: >"$folder/times"
echo "Two nodes of two ranks, $num_steps steps. MB a step: sent by the first rank over each axis of the mesh, and by a node"
echo "over the cable (counted by its network device, with what starting and ending sends)."
echo
echo '| cable  | sharding      | step, ms | least, ms | fsdp, MB | dp_replicate, MB | node to node, MB |'
echo '|--------|---------------|---------:|----------:|---------:|-----------------:|-----------------:|'
for rate in "${rates[@]}"; do
  for strategy in "${strategies[@]}"; do
    run_one "$rate" "$strategy"
  done
done
