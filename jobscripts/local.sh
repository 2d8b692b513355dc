#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fine-tunes on this machine:
#   jobscripts/local.sh                           the quickstart: sets up, builds, trains in minutes
#   jobscripts/local.sh DECK.toml [key=value ...]   another deck, values changed on the way
#   jobscripts/local.sh build                     sets up and builds only
# Exit code: the program's; 69 if this machine lacks something. Other commands need one process only:
# build/finetune plan DECK.toml
set -euo pipefail

case ${1:-} in
  -h | --help)
    sed -n '3,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  "" | build | *.toml) ;;
  *)
    printf 'error: command line: "%s" is no deck (its name ends in .toml). Say: local.sh [build | DECK.toml [key=value ...]]\n' \
      "$1" >&2
    exit 64
    ;;
esac

# shellcheck source=setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=env/run.sh
. "$root/jobscripts/env/run.sh"

set_up_machine
begin "the program"
configure "$build" "${build_options[@]}"
compile "$build" finetune
if [ "${1:-}" = build ]; then
  say_times
  say "built $build/finetune"
  exit 0
fi

cores=$(count_cores)
gpus=$(count_gpus)
if [ "$gpus" -gt 0 ]; then
  ranks=${FINETUNE_RANKS:-$gpus}
  most=$gpus unit=GPU
else
  ranks=${FINETUNE_RANKS:-$cores}
  # More ranks than cores wait for each other with busy cores: slower than fewer ranks, always.
  most=$cores unit=core
fi
if [ "$ranks" -gt "$most" ]; then
  say "$ranks ranks were asked for, starting $most: one per $unit"
  ranks=$most
fi
read -r -a binding <<<"$(binding_of "$ranks" "$cores" "$gpus")"
near=()
if [ "$gpus" -gt 0 ] && command -v taskset >/dev/null; then mapfile -t near < <(cores_near_gpus "$ranks"); fi
# The program gives each rank the GPU that is nearest to its cores.
[ ${#near[@]} -ne "$ranks" ] || binding=(--bind-to none)
if [ $# -eq 0 ]; then
  # Its paths count from the top of the project.
  cd "$root"
  set -- inputs/quickstart.toml
fi

# --quiet: Open MPI's advice would bury the program's own message; what it leaves out is said below.
command=(mpirun -n "$ranks" --host "localhost:$ranks" "${binding[@]}" --quiet)
# Open MPI refuses to run as root unless told; in a container root is all there is.
[ "$(id -u)" -ne 0 ] || command+=(--allow-run-as-root)
# mpirun knows cores and no GPUs: each rank takes its own by itself.
[ ${#near[@]} -ne "$ranks" ] || command+=(bash -c "$take_cores" finetune "${near[*]}")
command+=("$build/finetune" "$@")
# Open MPI gives every rank a terminal, so the program cannot see whether there is one.
columns=0
if [ -t 1 ]; then
  columns=$(stty size 2>/dev/null </dev/tty | cut -d ' ' -f 2) || columns=
  [ "${columns:-0}" != 0 ] || columns=80
fi
export FINETUNE_TERMINAL_COLUMNS=$columns

say "starting $ranks rank$([ "$ranks" -eq 1 ] || echo s): finetune $*"
begin "the run"
code=0
run_ranks "${command[@]}" || code=$?
say_times
# Who stopped the run at once knows why it ended.
if [ $stops -gt 1 ]; then
  exit $code
elif [ $code -gt 128 ]; then
  printf 'error: mpirun: a rank was ended by signal %s (9 is mostly memory that ran out). %s\n' \
    $((code - 128)) "The same command continues from the newest checkpoint." >&2
elif [ $code -eq 1 ]; then
  printf 'error: mpirun: the ranks could not be started. To see why: %s\n' \
    "$(printf '%q ' "${command[@]}" | sed 's/ --quiet//')" >&2
fi
exit $code
