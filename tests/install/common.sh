# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of this folder: counts checks.
export LC_ALL=C
failures=0
checks=0

# expect WHAT EXPECTED ACTUAL
expect() {
  checks=$((checks + 1))
  [ "$2" = "$3" ] && return
  failures=$((failures + 1))
  printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
}

# holds WHAT COMMAND...: the command succeeds. What it said, shown if it does not, is in $said.
holds() {
  local code=0
  said=$("${@:2}" 2>&1) || code=$?
  checks=$((checks + 1))
  [ $code -eq 0 ] && return
  failures=$((failures + 1))
  printf 'FAILED: %s: exit code %s\n%s\n' "$1" "$code" "$said"
}

finish() {
  echo "$checks checks, $failures failed"
  exit $((failures > 0))
}
