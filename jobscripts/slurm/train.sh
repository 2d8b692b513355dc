#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains under Slurm, for as many jobs as it takes:
#   sbatch -N2 --ntasks-per-node=4 --time=4:00:00 jobscripts/slurm/train.sh DECK.toml [key=value ...]
# The run stops in time with a checkpoint, and the job goes back into the queue until the run is done.
#SBATCH --job-name=finetune
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
set -euo pipefail

# Slurm runs a copy of this file; where it came from is in the job's record.
if [ -z "${FINETUNE_ROOT:-}" ]; then
  script=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=\([^ ]*\).*/\1/p')
  FINETUNE_ROOT=$(dirname "$script")/../..
fi
# shellcheck disable=SC2034  # for site.sh
root=$FINETUNE_ROOT
# shellcheck source=../env/site.sh
. "$FINETUNE_ROOT/jobscripts/env/site.sh"
# shellcheck source=../env/time.sh
. "$FINETUNE_ROOT/jobscripts/env/time.sh"
# shellcheck source=../env/run.sh
. "$FINETUNE_ROOT/jobscripts/env/run.sh"

deck=${1:?the deck: sbatch jobscripts/slurm/train.sh DECK.toml [key=value ...]}
shift
settings=("$@")
# First, because of two values for a key the last one counts.
if left=$(slurm_seconds_left); then settings=("train.max_seconds=$left" "$@"); fi

restarts=${SLURM_RESTART_COUNT:-0}
echo "finetune: job $SLURM_JOB_ID, start $((restarts + 1)), ${left:-unlimited} s: $deck ${settings[*]}"
code=0
run_ranks srun --mpi=pmix --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
  "$FINETUNE_ROOT/build/finetune" "$deck" "${settings[@]}" || code=$?

# A job that was cancelled is not RUNNING any more, and stays cancelled.
if asks_for_another $code && [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; then
  if [ "$restarts" -lt "$FINETUNE_MAX_RESTARTS" ]; then
    echo "finetune: exit code $code: back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "finetune: exit code $code after $restarts restarts: the same sbatch goes on (FINETUNE_MAX_RESTARTS)"
  fi
fi
exit $code
