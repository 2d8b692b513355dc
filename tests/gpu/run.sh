#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the first GPU is for, in calls of less than ten minutes each:
#   tests/gpu/run.sh first       the first figures: steps of 8B and 1B models beside torch's, after the shortest proofs
#   tests/gpu/run.sh a           is it right: tests, precisions, restarts, modes, against the CPU
#   tests/gpu/run.sh b           how fast, how much memory: what a step is made of, steps of 1B and 8B models
#   tests/gpu/run.sh c           does it last: memory checker, out of memory, signals, kills, other orders of work
#   tests/gpu/run.sh a rehearse  the same script on the simulated GPU of a build without CUDA, with small sizes
# Programs come from .gpu, which tests/gpu/bundle.sh fills, or from the build folder FINETUNE_BUILD.
#
# A line per check, PASS, FAIL or SKIP with the reason, and logs, figures and a description of the machine in OUT
# (./out): eight files at most. What its budget (FINETUNE_BUDGET_S, 510 s; 560 s for first) has no room for is skipped.
# Exit code: 0 if nothing failed, 1 if something did, 64 for other words, 69 without a GPU.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
call=${1:-}
mode=${2:-full}
case $call/$mode in
  [abc]/full | [abc]/rehearse | first/full | first/rehearse) ;;
  *)
    printf 'error: command line: which call is meant? Say: run.sh first|a|b|c [rehearse]\n' >&2
    exit 64
    ;;
esac

# shellcheck source=calls/checks.sh
. "$here/calls/checks.sh"
# shellcheck source=calls/environment.sh
. "$here/calls/environment.sh"
# shellcheck source=calls/training.sh
. "$here/calls/training.sh"
# shellcheck source=calls/a.sh
. "$here/calls/a.sh"
# shellcheck source=calls/b.sh
. "$here/calls/b.sh"
# shellcheck source=calls/c.sh
. "$here/calls/c.sh"
# shellcheck source=calls/first.sh
. "$here/calls/first.sh"

# fail_without_gpu: what a machine without one is told.
fail_without_gpu() {
  printf 'error: %s: there is no GPU here (%s). %s\n' "$(uname -n)" "nvidia-smi lists none" \
    "To rehearse without one: run.sh $call rehearse" >&2
  exit 69
}

begin_call
# A bundle can show that it starts; a build for CPUs has nothing to start.
if [ "$mode" = full ] && ! has_gpu && [ ! -f "$root/.gpu/bundle.tar.gz" ]; then fail_without_gpu; fi
find_programs
set_environment
check machine 20 describe_machine
if [ "$mode" = full ] && ! has_gpu; then
  call_without_gpu
  end_call || true
  fail_without_gpu
fi
"call_$call"
end_call
