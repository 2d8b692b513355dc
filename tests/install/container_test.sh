#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The sections of the container's definition, as Apptainer would take them.
#   container_test.sh WORK_FOLDER         they are complete and name what is there
#   container_test.sh WORK_FOLDER build   runs them in a bare Debian 12; exit code 77 where there can be none
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=bare_root.sh
. "$(dirname "${BASH_SOURCE[0]}")/bare_root.sh"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
definition=$top/spack/container/finetune.def
mkdir -p "$1"
cd "$1" || exit 1

# section NAME: its lines.
section() {
  awk -v name="%$1" '/^%/ { inside = $1 == name; next } inside' "$definition"
}
for name in post environment runscript test; do
  lines=$(section $name)
  expect "%$name is there" yes "${lines:+yes}"
  section $name >"$name.sh"
  holds "%$name is for sh" sh -n "$name.sh"
  # Words of $kept and $linked are meant to be split.
  if command -v shellcheck >/dev/null; then
    holds "%$name passes shellcheck" shellcheck --shell=sh --exclude=SC2046,SC2086 "$name.sh"
  fi
done
while read -r from to; do
  expect "%files: $from is there" yes "$([ -e "$top/$from" ] && echo yes)"
  expect "%files: $from keeps its place" "/usr/src/finetune/$from" "$to"
done < <(section files | grep .)
# Its base is the system that the tests are for.
expect "the base" "From: debian:12-slim" "$(grep ^From: "$definition")"
[ "${2:-}" = build ] || finish

bare_root_or_skip
trap remove_bare_root EXIT
make_bare_root || exit 1
mapfile -t names < <(section files | awk 'NF { print $1 }')
copy_sources "$top" /usr/src/finetune "${names[@]}"
cp {post,environment,runscript,test}.sh "$bare_root/"
start=$SECONDS
echo "%post:"
in_bare_root sh -e /post.sh
expect "%post ends well" 0 $?
echo "%post took $((SECONDS - start)) s"
du -sh --exclude="$bare_root"/{proc,sys,dev} "$bare_root" | awk '{ print "the container has " $1 "B" }'

# The program starts without compilers and sources, and trains.
run="cd /tmp && . /environment.sh &&"
holds "%test" in_bare_root sh -c "$run . /test.sh"
expect "it is built for all processors of a cluster" 1 "$(grep -c 'arch x86-64-v3$\|arch armv8.2-a$' <<<"$said")"
expect "compilers are gone" "" "$(in_bare_root sh -c 'command -v g++ cmake ninja pip3')"
expect "sources are gone" "" "$(ls "$bare_root/usr/src")"
words="inputs/quickstart.toml train.max_steps=2 train.global_batch=4 train.micro_batch=2"
words+=" train.validate_steps=0 data.validation_path= metrics.answers=0 train.output=/tmp/out"
holds "%runscript trains" in_bare_root sh -c "$run cd \$FINETUNE_ROOT && sh /runscript.sh $words"
holds "two ranks train" in_bare_root sh -c "$run cd \$FINETUNE_ROOT &&
  mpirun --allow-run-as-root --oversubscribe -n 2 sh /runscript.sh $words train.output=/tmp/two"
holds "their checkpoint is whole" in_bare_root sh -c "$run finetune verify /tmp/two"
finish
