#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The jobscripts of an installed prefix start its program, with schedulers of a few lines on the PATH.
#   jobscripts_test.sh PREFIX WORK_FOLDER
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

prefix=$1
work=$2
scripts=$prefix/share/finetune/jobscripts
if ! grep -q FINETUNE_BINARY "$scripts/env/site.sh"; then
  echo "skipped: these jobscripts look for the program in a source tree only"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work/bin"
cd "$work" || exit 1
work=$PWD

# program NAME: makes a program of what comes on stdin.
program() {
  { echo '#!/usr/bin/env bash'; cat; } >"bin/$1"
  chmod +x "bin/$1"
}
program squeue <<<'case "$*" in *%L*) echo 10:00 ;; *%T*) echo RUNNING ;; esac'
program qstat </dev/null
program pbs_tmrsh </dev/null
program scontrol <<<"printf 'JobId=7 JobName=x\n   Command=%s deck.toml\n' '$scripts/slurm/train.sh'"
# Launchers leave their own options out, and say where the program really is.
for name in srun mpirun; do
  program $name <<'PROGRAM'
for word in "$@"; do
  case "$word" in */finetune) realpath "$word" >>"$LOG"; exec "$word" --version ;; esac
done
PROGRAM
done
export PATH=$work/bin:$PATH LOG=$work/log

# check NAME: the last script started the prefix's program, once.
check() {
  expect "$1: the program" "$(realpath "$prefix/bin/finetune")" "$(cat "$LOG")"
  : >"$LOG"
}
: >"$LOG"
holds "slurm" env SLURM_JOB_ID=7 "$scripts/slurm/train.sh" deck.toml
check slurm
# As Slurm does it: the script runs from a copy in a spool folder.
cp "$scripts/slurm/train.sh" "$work/slurm_script"
holds "slurm, spooled" env SLURM_JOB_ID=7 bash "$work/slurm_script" deck.toml
check "slurm, spooled"
printf 'n1\nn1\n' >nodes
for system in pbs torque; do
  [ -d "$scripts/$system" ] || continue
  holds $system env FINETUNE_ROOT="$prefix/share/finetune" FINETUNE_DECK=deck.toml PBS_JOBID=7.server \
    PBS_NODEFILE="$work/nodes" "$scripts/$system/train.sh"
  check $system
done
finish
