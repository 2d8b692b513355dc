#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The commands of README.md on a bare Debian 12, from a clone, without a compiler cache: jobscripts/local.sh installs,
# fetches, builds, trains; and once more. Says when it came how far, in seconds from its start.
#   local_test.sh WORK_FOLDER
#   local_test.sh WORK_FOLDER tests   afterwards tests/run.sh, which builds everything, with a few of the tests
# Exit code 77 where there can be no bare system.
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=bare_root.sh
. "$(dirname "${BASH_SOURCE[0]}")/bare_root.sh"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
mkdir -p "$1"
cd "$1" || exit 1
bare_root_or_skip
trap remove_bare_root EXIT
start=$SECONDS
make_bare_root || exit 1
copy_sources "$top" /finetune .
echo "a bare system and a clone: $((SECONDS - start)) s"

# start_local STEPS: the quickstart, ended after so many steps; its lines with the seconds at which they came.
start_local() {
  local start=$SECONDS
  in_bare_root bash -c 'cd /finetune && exec jobscripts/local.sh "$@"' local inputs/quickstart.toml "train.max_steps=$1" \
    data.validation_path= metrics.answers=0 2>&1 </dev/null |
    while IFS= read -r line; do printf '%4d s  %s\n' $((SECONDS - start)) "$line"; done >local.log
} # fails as local.sh does: pipefail
start_local 2
expect "it ends well" 0 $?
# Installing, fetching, configuring, building, starting, and the first step.
grep -E ' s  (finetune: |step 1/|error)' local.log
for what in "installing by apt" "fetching torch" configuring "building" "starting"; do
  expect "it says that it is $what" 1 "$(grep -c "finetune: $what" local.log)"
done
expect "the first step is reported" 1 "$(grep -c ' step 1/2 ' local.log)"
expect "the second too" 1 "$(grep -c ' step 2/2 ' local.log)"
holds "the checkpoint is whole" in_bare_root sh -c 'cd /finetune && build/finetune verify build/quickstart'

start_local 3
expect "a second start ends well" 0 $?
grep -E ' s  (finetune: |step 3/|error)' local.log
expect "a second start installs and builds nothing" "" \
  "$(grep -E 'installing|fetching|configuring|building' local.log)"
expect "it continues" 1 "$(grep -c ' step 3/3 ' local.log)"
[ $failures -eq 0 ] || cat local.log
[ "${2:-}" = tests ] || finish

start=$SECONDS
in_bare_root bash -c 'cd /finetune && exec tests/run.sh "$@"' run -R '^(unit/core|style/.*|install/prefix|install/remove)$' \
  >run.log 2>&1 </dev/null
expect "tests/run.sh ends well" 0 $?
expect "its last line is the summary" 1 "$(tail -n 1 run.log | grep -c '^100% tests passed')"
echo "tests/run.sh took $((SECONDS - start)) s"
tail -n 40 run.log
finish
