#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `finetune check` on two nodes of two ranks, one of which is as it should not be: each fault is named with
# the node, and the exit code is 69.
#   check_test.sh FINETUNE FOLDER
# Exit code 77: this machine cannot make nodes; the last line says why.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=expect.sh
. "$here/expect.sh"
root=$(cd "$here/../.." && pwd -P)
finetune=$1
folder=$2

tell_more() { cat "$folder/log"; }

# check EXIT_CODE [--rate RATE] PROGRAM... : runs the program on both nodes.
check() {
  local expected=$1 shape=() code=0
  shift
  [ "$1" != --rate ] || { shape=("$1" "$2") && shift 2; }
  "$here/two_nodes.sh" "${shape[@]}" -- "$@" >"$folder/log" 2>&1 || code=$?
  if [ $code -eq 77 ]; then
    tail -n 1 "$folder/log"
    exit 77
  fi
  expect "exit code $expected of $*" test $code -eq "$expected"
}

# What runs in the place of a program on node2, where it first puts one file over another:
# on_node2 FILE OTHER PROGRAM...
cat >"$folder.on_node2" <<'EOS'
#!/usr/bin/env bash
set -euo pipefail
file=$1 other=$2
shift 2
[ "$(hostname)" = node2 ] || exec "$@"
exec unshare --mount --propagation private "$BASH" -euc 'mount --bind "$2" "$1"; shift 2; exec "$@"' - "$file" "$other" "$@"
EOS
chmod +x "$folder.on_node2"
on_node2=$folder.on_node2

rm -rf "$folder"
mkdir -p "$folder/data"
cp "$root/inputs/smoke/counting.txt" "$folder/data/counting.txt"
# As long as the file, and other in one byte.
sed '1s/^./X/' "$folder/data/counting.txt" >"$folder/other.txt"
sed "s|\.\./smoke/counting.txt|$folder/data/counting.txt|; s|\.\./smoke/model|$root/inputs/smoke/model|; \
  s|build/smoke-pretraining|$folder/output|" "$root/inputs/smoke/pretraining.toml" >"$folder/deck.toml"
deck=$folder/deck.toml

check 0 "$finetune" check "$deck" --save "$folder/machine.toml"
expect "two nodes are seen" grep -Eq '^ *launch +good +4 ranks on 2 nodes, 2 per node$' "$folder/log"
expect "they share their files" grep -Eq 'files +good .*the same on 2 nodes' "$folder/log"
expect "links are measured" grep -Eq '^inter_gb_per_s = [0-9.e-]*[1-9]' "$folder/machine.toml"
expect "a plan can be made with them" "$finetune" plan "$deck" --ranks 4 --ranks-per-node 2 \
  --machine "$folder/machine.toml"
check 0 "$finetune" check "$deck" --quick
expect "the quick check measures no links" test "$(grep -c 'links' "$folder/log")" -eq 0

check 0 --rate 1gbit "$finetune" check "$deck"
expect "a slow network passes, with how to reject it" \
  grep -Eq '^warning: .*parallel\.min_link_gbit_per_s' "$folder/log"
check 69 --rate 1gbit "$finetune" check "$deck" parallel.min_link_gbit_per_s=10.0
expect "both directions of the slow link are named" \
  test "$(grep -Ec '^error: node[12] -> node[12]: the link reaches (0\.[0-9]+|[1-4](\.[0-9]+)?) Gbit/s' "$folder/log")" -eq 2

check 69 "$on_node2" "$folder/data/counting.txt" "$folder/other.txt" "$finetune" check "$deck"
expect "the other data file is named" \
  grep -q "^error: node2: $folder/data/counting.txt: has another content" "$folder/log"
check 69 "$on_node2" "$folder/data/counting.txt" "$folder/other.txt" "$finetune" "$deck"
expect "training names it too" \
  grep -q "^error: node2: $folder/data/counting.txt: has another content" "$folder/log"

cp "$deck" "$folder/other.toml"
echo '# changed' >>"$folder/other.toml"
check 69 "$on_node2" "$deck" "$folder/other.toml" "$finetune" check "$deck" --quick
expect "the other deck is named" grep -q "^error: node2: $deck: is not the deck" "$folder/log"

cp "$finetune" "$folder/finetune"
cp "$finetune" "$folder/finetune.other"
printf 'x' >>"$folder/finetune.other"
check 69 "$on_node2" "$folder/finetune" "$folder/finetune.other" "$folder/finetune" check "$deck" --quick
expect "the other binary is named" grep -q "^error: node2: rank 2: has another program" "$folder/log"

printf 'MemTotal: 65536 kB\nMemAvailable: 32768 kB\n' >"$folder/meminfo"
check 69 "$on_node2" /proc/meminfo "$folder/meminfo" "$finetune" check "$deck" --quick
expect "the node with too little memory is named" \
  grep -Eq '^error: node2: rank 2: needs .* of memory per rank' "$folder/log"

mkdir -p "$folder/output" "$folder/elsewhere"
check 69 "$on_node2" "$folder/output" "$folder/elsewhere" "$finetune" check "$deck" --quick
expect "the node that sees another output folder is named" \
  grep -q "^error: node2: $folder/output: is not the folder that rank 0 sees" "$folder/log"

check 69 "$finetune" check "$deck" --quick parallel.expect_nodes=3
expect "the wrong number of nodes is told" \
  grep -q '^error: launch: the job has 2 nodes (parallel.expect_nodes = 3' "$folder/log"

rm -f "$on_node2"
exit $((failures > 0))
