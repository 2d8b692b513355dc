#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a launch on several numbers of ranks prints and returns: ranks_test.sh PROGRAM WORK_FOLDER
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=../../install/common.sh
. "$here/../../install/common.sh"
command -v mpirun >/dev/null || { echo "no mpirun here"; exit 1; }
program=$1
mkdir -p "$2"
cd "$2" || exit 1

# launch FAULT [ARGUMENT...]: sets code; what is printed is in FAULT.log.
launch() {
  code=0
  FINETUNE_TEST_PLANTED=$1 "$here/../mpirun.sh" 4 "$program" --name=ranks --ranks=1,2,3,4 "${@:2}" >"$1.log" 2>&1 || code=$?
}

launch none
expect "all numbers of ranks pass" 0 $code
for line in "ranks on 1 rank: passed, 3" "ranks on 2 ranks: passed, 4" "ranks on 3 ranks: passed, 3" "ranks on 4 ranks: passed, 3"; do
  expect "$line" 1 "$(grep -c "^$line tests in" none.log)"
done
launch failure
expect "a failure of one rank on one number of ranks fails" 1 $code
expect "its number of ranks is named" "ranks on 3 ranks: FAILED" "$(grep -o '^ranks on .* FAILED' failure.log)"
expect "and the test" 1 "$(grep -c '^Ranks.SayWhichOfThemFails on another rank' failure.log)"
expect "and the rank" 1 "$(grep -c '^rank 2: ' failure.log)"
expect "the other numbers pass" 3 "$(grep -c '^ranks on .*: passed' failure.log)"
launch hang --limit=1
expect "what does not end is ended" 74 $code
expect "and is named" 1 "$(grep -c '^ranks on 3 ranks: not done after 1 s, in Ranks.EndAtTheirLimit' hang.log)"
finish
