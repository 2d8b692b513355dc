#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/repeat.sh on tests of a line each: which of them it lists, and that what keeps cores busy ends with it.
#   repeat_test.sh WORK_FOLDER
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=../cluster/expect.sh
. "$here/../cluster/expect.sh"
work=${1:?a folder to work in}
rm -rf "$work"
mkdir -p "$work"
cd "$work"
cat >flaky.sh <<'EOS'
echo x >>count
[ "$(grep -c x count)" -ne 2 ] || { echo "it begins"; echo "flaky.cpp:7: Failure"; exit 1; }
EOS
cat >sometimes.sh <<'EOS'
echo x >>seen
[ "$(grep -c x seen)" -ne 1 ] || echo "skipped: not yet"
EOS
cat >CTestTestfile.cmake <<'EOS'
add_test(good true)
add_test(bad false)
add_test(flaky sh flaky.sh)
add_test(absent echo "skipped: nothing here")
add_test(sometimes sh sometimes.sh)
add_test(long false)
add_test(waiting sh -c "touch reached && tail -f /dev/null")
set_tests_properties(absent sometimes PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
set_tests_properties(long waiting PROPERTIES LABELS soak)
EOS
export FINETUNE_BUILD=$work
repeat=$here/../repeat.sh

code=0
"$repeat" 3 1 >out 2>&1 || code=$?
expect "failures are the exit code" test $code -eq 1
expect "what always fails is listed" grep -Eq '^ +3 of 3 +bad +1,2,3 +Failed +\(no output\)$' out
expect "what failed once, with the line that says why" \
  grep -Eq '^ +1 of 3 +flaky +2 +Failed +flaky.cpp:7: Failure$' out
expect "what was skipped once" grep -Eq '^ +1 of 3 +sometimes +1 +Skipped ' out
expect "and nothing else" test "$(grep -c ' of 3  ' out)" -eq 3
expect "what was skipped each time is counted" grep -q 'skipped each time: 1$' out
expect "logs are kept" test -s repeat/3/ctest.log

code=0
"$repeat" 2 -- -R good >out 2>&1 || code=$?
expect "options go to ctest, and success is the exit code" test $code -eq 0
code=0
"$repeat" 1 -- -R nothing_of_this_name >out 2>&1 || code=$?
expect "no tests are no success" test $code -eq 1
for words in "" "0" "x" "2 1 2" "2 -R good"; do
  code=0
  # shellcheck disable=SC2086
  "$repeat" $words >out 2>&1 || code=$?
  expect "'$words' is a wrong command line" test $code -eq 64
done

# What a process started, and what that started.
# shellcheck disable=SC2013 # words of one line
family_of() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    echo "$child"
    family_of "$child"
  done
}
# shellcheck disable=SC2317 # expect calls it
all_end() {
  local pid
  for pid in "$@"; do
    # What never ends fails by ctest's time limit.
    while [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
  done
}
for signal in TERM KILL; do
  rm -f reached
  "$repeat" --all 1 2 -- -R waiting >out 2>&1 &
  script=$!
  until [ -e reached ]; do sleep 0.02; done
  mapfile -t family < <(family_of $script)
  # Two busy ones, ctest, the test's shell and its tail.
  expect "$signal: it has children" test ${#family[@]} -ge 4
  kill "-$signal" $script
  wait $script 2>/dev/null || true
  if [ $signal = KILL ]; then
    # Nothing ends ctest then but this; the busy ones see it by themselves.
    for pid in "${family[@]}"; do
      case $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) in *repeat.sh*) ;; *) kill "$pid" 2>/dev/null || true ;; esac
    done
  fi
  expect "$signal: all that it started ends" all_end "${family[@]}"
done
exit $((failures > 0))
