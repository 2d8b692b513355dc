#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Finds out which of the planted faults the default tests find: README.md.
#   tests/planted/run.sh [--named] [NN...]   plants each fault (or those named) in a copy of this tree, one after the other
#   tests/planted/run.sh --check             only looks whether each can still be planted
# With --named only the tests that a fault names are built and run: minutes where they find it. Otherwise all others follow
# until one fails. The copy and its build lie in build/planted; this tree is only read. Exit code: 0 if at most two
# faults are not found, 1 if there are more, 69 if this machine lacks something.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
original=$(cd "$here/../.." && pwd -P)
copy=$original/build/planted/tree
named=no
case "${1:-}" in
  --check) exec python3 "$here/faults.py" check "$original" ;;
  --named) named=yes && shift ;;
esac
numbers=("$@")
[ ${#numbers[@]} -gt 0 ] || mapfile -t numbers < <(python3 "$here/faults.py" list | cut -d ' ' -f 1)
python3 "$here/faults.py" check "$original"

# What this tree holds now, with its times, so that what was built before stays good; but not what was planted before.
copy_tree() {
  local file
  mkdir -p "$copy"
  while read -r file; do
    [ -e "$original/$file" ] || rm "$copy/$file"
  done < <(cd "$copy" && find . -path ./build -prune -o ! -type d -print)
  tar -C "$original" -c --exclude=./build --exclude='./build*' --exclude=./.git --exclude=./.gpu . | tar -C "$copy" -x
  while read -r file; do
    [ ! -f "$copy/$file" ] || touch "$copy/$file"
  done < <(sort -u "$copy/build/planted_files" 2>/dev/null || true)
}

# set_up: the copy's build, configured as tests/run.sh does it; sets root, build and at_once.
set_up() {
  if [ -z "${FINETUNE_LIBTORCH:-}" ] && [ -f "$original/build/CMakeCache.txt" ]; then
    FINETUNE_LIBTORCH=$(sed -n 's/^LibTorch_ROOT:[A-Z]*=//p' "$original/build/CMakeCache.txt")
    export FINETUNE_LIBTORCH
  fi
  # shellcheck source=../../jobscripts/setup.sh
  . "$copy/jobscripts/setup.sh"
  find_libtorch
  # shellcheck disable=SC2154
  configure "$build" "${build_options[@]}" FINETUNE_WERROR=ON FINETUNE_BENCH=OFF
  at_once=$(($(count_cores) * 3 / 2))
  [ $at_once -gt 2 ] || at_once=2
}

# expression_of TEST: for ctest, on any number of ranks.
expression_of() { echo "^${1//./\\.}(\\.r[0-9]+)?\$"; }

# build_tests [TEST]: compiles it; without one, or where it is no program of its own, everything.
build_tests() {
  local target=test_${1//\//_}
  grep -qx "$target: phony" "$copy/build/targets" || target=all
  (compile "$build" "$target") >"$build/planted.build.log" 2>&1
}

# run_tests OPTION...: the default tests but for style/, which would see any change; 0 if all pass. Sets `failed` to the first
# that does not.
run_tests() {
  local code=0 log=$build/planted.ctest.log
  (cd "$build" && ctest -j "$at_once" -LE soak -E "^style/|$unfit" --output-on-failure "$@") >"$log" 2>&1 || code=$?
  failed=$(sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \([^ ]*\) .*\*\*\*\(Failed\|Timeout\|Exception\|Not Run\).*/\1/p' "$log" | sed -n 1p)
  [ $code -eq 0 ]
}

# Tests that fail without a fault would seem to find each: they are left out.
unfit='^$'
leave_out_unfit() {
  local name names=()
  run_tests "$@" && return
  mapfile -t names < <(sed 's/^[0-9]*://' "$build/Testing/Temporary/LastTestsFailed.log")
  for name in "${names[@]}"; do
    say "$name fails without a fault: it is left out"
    unfit+="|^${name//./\\.}\$"
  done
}

# Builds a test without a fault and runs it, once.
declare -A known
know() {
  [ -z "${known[$1]:-}" ] || return 0
  known[$1]=yes
  build_tests "$1" || stop "$1" "the tree does not build" "see $build/planted.build.log" "Correct it first."
  leave_out_unfit -R "$(expression_of "$1")"
}

# The tree without a fault, built and run once before other tests than those named are asked.
judged_all=no
judge_all() {
  [ $judged_all = no ] || return 0
  judged_all=yes
  say "building and running everything without a fault"
  build_tests "" || stop "$build" "the tree does not build" "see $build/planted.build.log" "Correct it first."
  leave_out_unfit
}

# plant NN, remove: `file` is the one that the fault is in.
plant() {
  file=$(python3 "$here/faults.py" plant "$copy" "$1")
  echo "$file" >>"$build/planted_files"
}
remove() {
  [ -z "${file:-}" ] || cp "$original/$file" "$copy/$file"
  file=
}

# judge NN: plants, builds, runs; says what became of it, and counts.
judge() {
  local number=$1 test tests began=$SECONDS
  read -r -a tests < <(python3 "$here/faults.py" tests "$number")
  [ $named = yes ] || tests+=("")
  for test in "${tests[@]}"; do
    # Without a fault first; the last are all others.
    if [ -n "$test" ]; then know "$test"; else judge_all; fi
    plant "$number"
    if ! build_tests "$test"; then
      cp "$build/planted.build.log" "$build/planted.build.$number.log"
      say "$number does not compile: see $build/planted.build.$number.log"
      remove
      return
    fi
    if ! run_tests --stop-on-failure ${test:+-R "$(expression_of "$test")"}; then
      found=$((found + 1))
      say "$number found by $failed ($((SECONDS - began)) s)"
      remove
      return
    fi
    remove
  done
  say "$number not found${test:+ by ${tests[*]}} ($((SECONDS - began)) s)"
}

copy_tree
set_up
ninja -C "$build" -t targets all >"$build/targets"
found=0
trap remove EXIT
for number in "${numbers[@]}"; do judge "$number"; done
say "$found of ${#numbers[@]} found"
[ $((${#numbers[@]} - found)) -le 2 ]
