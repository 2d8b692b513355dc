# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests here: counts what is not as expected. A function tell_more, where there is one, then says why.
failures=0
# Longer than anything here takes on a busy machine, in seconds: what is waited for longer never comes.
# shellcheck disable=SC2034 # those that source this wait
run_limit=300

# expect WHAT COMMAND...
expect() {
  local what=$1
  shift
  if "$@"; then
    echo "good: $what"
  else
    echo "WRONG: $what"
    if declare -F tell_more >/dev/null; then tell_more; fi
    failures=$((failures + 1))
  fi
}
