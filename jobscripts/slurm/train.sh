#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains under Slurm, for as many jobs as it takes, one rank per GPU or group of cores:
#   sbatch -N2 --ntasks-per-node=4 --cpus-per-task=8 --gpus-per-node=4 --time=4:00:00 \
#     jobscripts/slurm/train.sh DECK.toml [key=value ...]
#   FINETUNE_SWEEP=sweep.txt sbatch --array=1-9 ... jobscripts/slurm/train.sh DECK.toml   line N in task N
# The run stops in time with a checkpoint, and the job goes back into the queue until the run is done.
#SBATCH --job-name=finetune
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
set -euo pipefail

# An array's task goes by both numbers: the SLURM_JOB_ID of one of them stands for the whole array.
job=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
# Slurm runs a copy of this file; where it came from is in the job's record. A copy elsewhere needs FINETUNE_ROOT.
from=$(scontrol show job "$job" | sed -n 's|^ *Command=\(.*\)/jobscripts/slurm/train\.sh.*|\1|p') || from=
[ ! -r "$from/jobscripts/env/job.sh" ] || FINETUNE_ROOT=$from
if [ ! -r "${FINETUNE_ROOT:-}/jobscripts/env/job.sh" ]; then
  echo "error: FINETUNE_ROOT=${FINETUNE_ROOT:-}: there are no jobscripts (this script was submitted from another" \
    "place). Set it to the folder that jobscripts/ lies in." >&2
  exit 69
fi
# shellcheck source=../env/job.sh
. "$FINETUNE_ROOT/jobscripts/env/job.sh"

find_binary
choose_deck "${SLURM_ARRAY_TASK_ID:-}" "$@"
# First, because of two values for a key the last one counts.
if left=$(slurm_seconds_left "$job"); then settings=("train.max_seconds=$left" "${settings[@]}"); fi

# Without --cpus-per-task every rank gets its part of what the job has of a node.
cpus=${SLURM_CPUS_PER_TASK:-$((${SLURM_CPUS_ON_NODE:-1} * ${SLURM_JOB_NUM_NODES:-1} / ${SLURM_NTASKS:-1}))}
[ "$cpus" -gt 0 ] || cpus=1
# Where Slurm does not bind, a rank would take every core of its node.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}
# Site's words. --wait: when a rank has died, the others get a minute.
read -ra command <<<"srun $FINETUNE_SRUN_OPTIONS"
command+=(--cpus-per-task="$cpus" --cpu-bind=cores --wait=60)
# Every rank sees the GPUs of its node and takes its own: only so do they reach each other's memory.
[ -z "${SLURM_GPUS_ON_NODE:-}" ] || command+=(--gpu-bind=none)

restarts=${SLURM_RESTART_COUNT:-0}
# A node that died in an earlier start may still hold what step 0 of this job had there, and PMIx does not come up
# beside that. So every start has a step number of its own; without PMIx a step leaves nothing.
for ((i = 0; i < restarts; i++)); do
  srun --mpi=none --nodes=1 --ntasks=1 true </dev/null 2>/dev/null || true
done
echo "finetune: job $job, start $((restarts + 1)), ${left:-unlimited} s: $deck ${settings[*]}"
code=0
run_ranks "${command[@]}" "$FINETUNE_BINARY" "$deck" "${settings[@]}" || code=$?

# A job that was cancelled, or taken from its nodes by Slurm, is not RUNNING any more.
state=$(again squeue -h -j "$job" -o %T) || state="RUNNING, as far as is known"
if [[ $state != RUNNING* ]]; then
  # Slurm counts the restart when it takes the job back: preempted, or a node has died.
  counted=$(scontrol show job "$job" | sed -n '0,/ Restarts=/s/.* Restarts=\([0-9]*\).*/\1/p') || counted=
  if [ "${counted:-0}" -gt "$restarts" ]; then
    echo "finetune: exit code $code, $(what_ended $code): Slurm has put the job back into the queue; it continues by itself"
  else
    what_next $code "the job is $state; the same sbatch"
  fi
elif ! asks_for_another $code "$restarts"; then
  what_next $code "the same sbatch"
elif [ "$restarts" -ge "$FINETUNE_MAX_RESTARTS" ]; then
  what_next $code "after $restarts restarts (FINETUNE_MAX_RESTARTS) the same sbatch"
else
  echo "finetune: exit code $code, $(what_ended $code): back into the queue; the job continues by itself"
  again scontrol requeue "$job" || what_next $code "scontrol requeue is not allowed here; the same sbatch"
fi
exit $code
