#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# By hand, on an idle machine: what a step takes on two nodes of two ranks over a cable of 1 Gbit/s and one of
# 10 Gbit/s, for every sharding strategy, beside what `finetune plan` says with the rates that `finetune check`
# measured over that cable just before.
#   rates.sh [FINETUNE [FOLDER]]      as in strategies.sh; RATES="1gbit 10gbit"
# FOLDER keeps deck.toml, the table times, and machine-RATE.toml. strategies.sh tells its own table on stderr.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
finetune=$(realpath "${1:-$here/../../build/finetune}")
folder=$(realpath -m "${2:-$here/../../build/tests/rates}")
export RATES=${RATES:-1gbit 10gbit}

# For its deck.
STRATEGIES=NO_SHARD STEPS=2 "$here/strategies.sh" "$finetune" "$folder" >/dev/null
for rate in $RATES; do
  "$here/two_nodes.sh" --rate "$rate" -- "$finetune" check "$folder/deck.toml" --save "$folder/machine-$rate.toml" \
    >"$folder/check-$rate.log" 2>&1 || { cat "$folder/check-$rate.log" >&2; exit 1; }
done
"$here/strategies.sh" "$finetune" "$folder" >&2

# planned RATE SHARDING: milliseconds.
planned() {
  "$finetune" plan "$folder/deck.toml" parallel.sharding="$2" --ranks 4 --ranks-per-node 2 \
    --machine "$folder/machine-$1.toml" | awk '$1 == "step" && ($3 == "ms" || $3 == "s" || $3 == "us") {
      print $2 * ($3 == "s" ? 1000 : $3 == "us" ? 0.001 : 1); exit }'
}

echo '| cable  | sharding      | measured, ms | planned, ms | planned / measured |'
echo '|--------|---------------|-------------:|------------:|-------------------:|'
while read -r rate sharding median _; do
  plan=$(planned "$rate" "$sharding")
  printf '| %-6s | %-13s | %12s | %11.1f | %18.2f |\n' "$rate" "$sharding" "$median" "$plan" \
    "$(awk -v a="$plan" -v b="$median" 'BEGIN { print a / b }')"
done <"$folder/times"
