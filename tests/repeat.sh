#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests several times in a tree that is built, next to processes that keep cores busy, and lists those that did
# not pass each time: what fails by chance.
#   tests/repeat.sh [--all] N [LOAD] [-- ctest options]    for example: tests/repeat.sh 20 4 -- -R parallel/watchdog
# N runs; LOAD busy processes, 0 if not said; --all: those labelled soak, too. What ctest prints is kept in
# build/repeat/RUN/ctest.log. FINETUNE_BUILD names another build folder. Exit code: 0 if each test passed each time, or
# was skipped each time; 1 if not; 64 for a wrong command line; 69 if nothing is built.
set -euo pipefail

# shellcheck source=../jobscripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../jobscripts/setup.sh"
build=${FINETUNE_BUILD:-$build}

usage() {
  sed -n '3,/^set /{/^# \{0,1\}/s///p}' "${BASH_SOURCE[0]}" >&2
  exit 64
}

chosen=(-LE soak)
if [ "${1:-}" = --all ]; then
  chosen=()
  shift
fi
runs=${1:-} load=0
[[ $runs =~ ^[1-9][0-9]*$ ]] || usage
shift
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  load=$1
  shift
fi
[ $# -eq 0 ] || { [ "$1" = -- ] && shift; } || usage
[ -f "$build/CTestTestfile.cmake" ] || stop "$build" "no tests are built here" "there is no CTestTestfile.cmake" \
  "Build with tests/run.sh"

# Busy until it is killed, or until this script is gone, however that ended.
keep_busy() {
  local i
  trap - EXIT INT TERM
  while kill -0 $$ 2>/dev/null; do
    for ((i = 0; i < 100000; i++)); do :; done
  done
}

# end_family PID: the process and what it started, the youngest first.
# shellcheck disable=SC2013,SC2317 # words of one line; the trap calls it
end_family() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do end_family "$child"; done
  kill "$1" 2>/dev/null || true
}

started=()
# shellcheck disable=SC2317 # the trap calls it
end_all() {
  local pid
  for pid in "${started[@]}"; do end_family "$pid"; done
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Lists tests as "how often it did not pass, name, runs in which, what ctest says, the first line that tells why". Of the
# tests that were skipped each time it only says how many.
list_failures() {
  awk -v runs="$runs" -v OFS='\t' '
    FNR == 1 { ++run; reading = "" }
    # "  3/10 Test  #7: unit/core ......***Failed    0.02 sec"
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
      line = $0
      sub(/^[^:]*: /, "", line)
      name = line
      sub(/ .*/, "", name)
      state = substr(line, length(name) + 1)
      sub(/ +[0-9.]+ sec.*/, "", state)
      sub(/^[ .]*/, "", state)
      sub(/^.*\*\*\*/, "", state)
      sub(/[ :].*/, "", state)
      known[name] = 1
      reading = ""
      if (state == "Passed") { ++passed[name]; next }
      if (state == "Skipped") ++skipped[name]
      else reading = name
      where[name] = where[name] (where[name] == "" ? "" : ",") run
      if (index(" " states[name] " ", " " state " ") == 0) states[name] = states[name] (states[name] == "" ? "" : " ") state
      next
    }
    /^ *Start +[0-9]+: / || /^[0-9]+% tests passed/ { reading = ""; next }
    reading != "" && /[^ \t]/ {
      if (first[reading] == "") first[reading] = $0
      if (why[reading] == "" && /Failure$|[Ee]rror|WRONG|FAILED|ERROR|terminate called/) why[reading] = $0
    }
    END {
      for (name in known) {
        if (passed[name] == runs) continue
        if (skipped[name] == runs) { ++num_skipped; continue }
        text = why[name] != "" ? why[name] : first[name] != "" ? first[name] : "(no output)"
        gsub(/\t/, " ", text)
        # Of a run that never came to it nothing is known, which is no success.
        print runs - passed[name], name, where[name] == "" ? "-" : where[name], states[name] == "" ? "Missing" : states[name], text
      }
      if (num_skipped > 0) print "skipped", num_skipped
    }' "$@"
}

rm -rf "$build/repeat"
# Half as many again as there are cores, as in tests/run.sh.
at_once=$(($(count_cores) * 3 / 2))
for ((i = 0; i < load; i++)); do
  keep_busy &
  started+=($!)
done
logs=()
for ((run = 1; run <= runs; run++)); do
  folder=$build/repeat/$run
  mkdir -p "$folder"
  logs+=("$folder/ctest.log")
  # In the background, so that a signal that ends this script is not kept waiting.
  (cd "$build" && exec ctest -j "$((at_once > 2 ? at_once : 2))" --output-on-failure --no-label-summary --no-tests=error \
    "${chosen[@]}" "$@") >"$folder/ctest.log" 2>&1 &
  started+=($!)
  wait $! || true
  unset 'started[-1]'
  say "run $run of $runs: $({ grep 'tests passed,' "$folder/ctest.log" || echo 'no test was run'; } | tail -n 1)"
done

if ! grep -q 'tests passed,' "${logs[@]}"; then
  cat "${logs[0]}" >&2
  exit 1
fi
list_failures "${logs[@]}" >"$build/repeat/table.txt"
skipped=$(sed -n 's/^skipped\t//p' "$build/repeat/table.txt")
[ -z "$skipped" ] || say "skipped each time: $skipped"
sed -i '/^skipped\t/d' "$build/repeat/table.txt"
if [ ! -s "$build/repeat/table.txt" ]; then
  say "all others passed each time: $runs runs beside $load busy processes"
  exit 0
fi
sort -t "$(printf '\t')" -k1,1nr -k2,2 -o "$build/repeat/table.txt" "$build/repeat/table.txt"
say "did not pass each time ($runs runs beside $load busy processes; logs: $build/repeat/RUN/ctest.log):"
{
  printf 'failed\ttest\tin runs\tas\tfirst line\n'
  awk -F '\t' -v OFS='\t' -v runs="$runs" '{ $1 = $1 " of " runs; $5 = substr($5, 1, 160); print }' "$build/repeat/table.txt"
} | awk -F '\t' '
  { row[NR] = $0; for (i = 1; i < 5; i++) if (length($i) > width[i]) width[i] = length($i) }
  END {
    for (r = 1; r <= NR; r++) {
      split(row[r], cell, "\t")
      for (i = 1; i < 5; i++) printf "  %-" width[i] "s", cell[i]
      print "  " cell[5]
    }
  }'
exit 1
