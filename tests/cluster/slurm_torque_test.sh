#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The jobscript for TORQUE through the qsub that comes with Slurm: two nodes of two ranks, two jobs.
#   slurm_torque_test.sh FINETUNE FOLDER
# Exit code 77: this machine cannot have such a Slurm; the last line says why.
set -euo pipefail
export LC_ALL=C

finetune=$1
folder=$2
# shellcheck source=training.sh
. "$(dirname "${BASH_SOURCE[0]}")/training.sh"
if [ -z "${FINETUNE_IN_CLUSTER:-}" ]; then
  if ! command -v qsub generate_pbs_nodefile >/dev/null; then
    echo "skipped: there is no qsub for Slurm here (package slurm-wlm-torque)" >&2
    exit 77
  fi
  FINETUNE_IN_CLUSTER=1 exec "$here/two_nodes.sh" --launcher sbatch -- "$BASH" "${BASH_SOURCE[0]}" "$@"
fi

no_jobs() {
  local jobs
  jobs=$(squeue -h) && [ -z "$jobs" ]
}

prepare
cd "$folder"
export FINETUNE_BINARY=$finetune FINETUNE_ROOT=$top
export FINETUNE_DECK="deck.toml ${deck_settings[*]} train.output=$folder/chain"
# Open MPI does not run as root unless told.
export FINETUNE_MPIRUN_OPTIONS=--allow-run-as-root
FINETUNE_DECK+=" train.stop_after_steps=12"
qsub -V -l nodes=2:ppn=2,walltime=00:10:00 -N chain -j oe "$top/jobscripts/torque/train.sh"
train_reference reference
wait_until "the end of the jobs" no_jobs

expect "a second job was submitted" test -s chain.o2
expect "on both nodes" grep -q '4 ranks on 2 nodes: node1 (0,1) node2 (2,3);' chain.o2
expect "it went on where the first stopped" grep -q '^continues from .*chain/step-0000000012 ' chain.o2
expect "and ends with the weights of a run in one piece" same_weights chain reference
[ $failures -eq 0 ] || give_up
