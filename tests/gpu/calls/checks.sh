# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: checks with a budget of time, their lines, and what is left of them in OUT.

# begin_call: sets out, work, logs, runs and the end of the budget.
begin_call() {
  out=${OUT:-$PWD/out}
  mkdir -p "$out"
  out=$(cd "$out" && pwd -P)
  work=$(mktemp -d "${TMPDIR:-/tmp}/finetune-gpu.XXXXXX")
  logs=$work/logs
  runs=$work/runs
  mkdir -p "$logs" "$runs"
  results=$out/results-$call.txt
  figures=$out/figures-$call.jsonl
  : >"$results"
  : >"$figures"
  budget_s=510
  [ "$call" != first ] || budget_s=560
  budget_s=${FINETUNE_BUDGET_S:-$budget_s}
  num_failed=0
  trap 'rm -rf "$work"' EXIT
}

# say LINE: a line of the results.
say() {
  printf '%s\n' "$*" | tee -a "$results"
}

# fail TEXT: ends a check.
fail() {
  printf 'problem: %s\n' "$*"
  exit 1
}

# skip TEXT: ends a check that has nothing to look at here.
skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

# What a log ends with, in one line.
reason_in() {
  local line
  line=$(grep -E '^(problem|skipped|error): ' "$1" | tail -n 1)
  [ -n "$line" ] || line=$(grep -v '^$' "$1" | tail -n 1)
  printf '%.300s' "${line#*: }"
}

# check NAME SECONDS COMMAND...: runs the command, a function mostly, if that much is left of the budget. It ends at the
# first command that fails, as with set -e; `bounded` in it keeps to the budget too.
check() {
  local name=$1 needs=$2 code=0 start=$SECONDS log=$logs/$1.log
  shift 2
  if [ -n "${FINETUNE_ONLY:-}" ] && ! [[ $name =~ $FINETUNE_ONLY ]]; then return; fi
  if [ $((budget_s - SECONDS)) -lt "$needs" ]; then
    say "SKIP $name: $((budget_s > SECONDS ? budget_s - SECONDS : 0)) s are left of the budget, it takes $needs s"
    return
  fi
  deadline=$((SECONDS + 4 * needs))
  [ $deadline -lt "$budget_s" ] || deadline=$budget_s
  # Not in a condition, where bash would forget set -e.
  (
    set -e
    "$@"
  ) >"$log" 2>&1 &
  wait $! || code=$?
  case $code in
    0) say "PASS $name ($((SECONDS - start)) s)" ;;
    77) say "SKIP $name: $(reason_in "$log")" ;;
    124 | 137)
      num_failed=$((num_failed + 1))
      say "FAIL $name: it was ended after $((SECONDS - start)) s"
      ;;
    *)
      num_failed=$((num_failed + 1))
      say "FAIL $name: $(reason_in "$log")"
      ;;
  esac
}

# bounded COMMAND...: with what is left of the check's time.
bounded() {
  local left=$((deadline - SECONDS))
  timeout -k 5 $((left > 1 ? left : 1)) "$@"
}

# figure NAME VALUE UNIT: a line of JSON like those of gpu_bench.
figure() {
  printf '{"figure": "%s", "value": %s, "unit": "%s", "device": "%s", "date": "%s"}\n' "$1" "$2" "$3" \
    "$device_name" "$(date -u +%F)" >>"$figures"
}

# end_call: puts the logs together, says how it went, and returns the exit code.
end_call() {
  # Weights and checkpoints stay here.
  find "$runs" -name 'metrics.jsonl' -o -name '*.log' -o -name '*.toml' | sed "s|^$work/||" >"$work/kept.txt"
  tar -czf "$out/logs-$call.tar.gz" -C "$work" logs -T "$work/kept.txt"
  [ ! -f "$logs/machine.log" ] || cp "$logs/machine.log" "$out/machine-$call.txt"
  say "$(grep -c '^PASS' "$results") passed, $num_failed failed, $(grep -c '^SKIP' "$results") skipped, in $SECONDS s"
  [ "$num_failed" -eq 0 ]
}
