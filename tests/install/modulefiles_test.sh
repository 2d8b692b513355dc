#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The installed modulefiles load, in Lmod and in Environment Modules, whichever is here.
#   modulefiles_test.sh PREFIX VERSION WORK_FOLDER
# Exit code 77: neither is here.
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

prefix=$1
version=$2
work=$3
# first FILE...: the first that is there.
first() {
  local file
  for file in "$@"; do
    [ ! -f "$file" ] || { echo "$file"; return; }
  done
}
lmod=$(first "${LMOD_CMD:-}" /usr/share/lmod/*/libexec/lmod)
modules=$(first "${MODULES_CMD:-}" /usr/lib/*/modulecmd.tcl)
if [ -z "$lmod$modules" ]; then
  echo "skipped: neither Lmod nor Environment Modules is here"
  exit 77
fi
# A site's own modules must not be among what is seen.
while read -r name; do unset "$name"; done < <(compgen -v | grep -E '^(LMOD_|_ModuleTable|LOADEDMODULES|_LMFILES_|__MODULES)')
rm -rf "$work"
mkdir -p "$work"/{copied,requiring}/finetune "$work/other/mpi"

# check SYSTEM MODULECMD MODULEPATH: `module load finetune` in a shell brings the program, and `unload` takes it.
check() {
  local system=$1 command=$2
  export MODULEPATH=$3
  (
    eval "$("$command" bash load finetune 2>"$work/errors")"
    echo "$(command -v finetune) ${FINETUNE_ROOT:-} ${MPI_OF_THE_SITE:-}"
    eval "$("$command" bash unload finetune 2>>"$work/errors")"
    echo "$(command -v finetune) ${FINETUNE_ROOT:-}"
  ) >"$work/said"
  expect "$system: load" "$prefix/bin/finetune $prefix/share/finetune ${4:-}" "$(sed -n 1p "$work/said")"
  expect "$system: unload" " " "$(sed -n 2p "$work/said")"
  expect "$system: it does not complain" "" "$(grep -iE 'error|warn|unable|unknown' "$work/errors")"
  "$command" bash help finetune/"$version" >"$work/help" 2>&1
  expect "$system: help says where the decks are" 1 "$(grep -c FINETUNE_ROOT/inputs "$work/help")"
}

installed=$prefix/share/modulefiles
# Lmod takes the .lua of a version before its Tcl file; a folder with that alone shows what it makes of it.
# The copy falls back on the prefix that was installed into, which this prefix has been moved away from.
made_for=$(sed -n 's/.*{ set prefix "\(.*\)" }$/\1/p' "$installed/finetune/$version")
expect "both files know the same prefix" "$made_for" \
  "$(sed -n 's/.*then prefix = "\(.*\)" end$/\1/p' "$installed/finetune/$version.lua")"
sed "s|$made_for|$prefix|" "$installed/finetune/$version" >"$work/copied/finetune/$version"
# What FINETUNE_MODULES=mpi/1 makes of them.
printf '#%%Module1.0\nsetenv MPI_OF_THE_SITE yes\n' >"$work/other/mpi/1"
if [ -n "$lmod" ]; then
  check "Lmod" "$lmod" "$installed"
  check "Lmod, Tcl" "$lmod" "$work/copied"
  sed -e "s|$made_for|$prefix|" -e 's/^local modules = {.*/local modules = {"mpi\/1"}/' \
    "$installed/finetune/$version.lua" >"$work/requiring/finetune/$version.lua"
  check "Lmod, with another module" "$lmod" "$work/requiring:$work/other" yes
  rm "$work/requiring/finetune/$version.lua"
fi
if [ -n "$modules" ]; then
  check "Environment Modules" "$modules" "$installed"
  check "Environment Modules, a copy" "$modules" "$work/copied"
  sed 's/^set modules {.*/set modules {mpi\/1}/' "$work/copied/finetune/$version" \
    >"$work/requiring/finetune/$version"
  check "Environment Modules, with another module" "$modules" "$work/requiring:$work/other" yes
fi
finish
