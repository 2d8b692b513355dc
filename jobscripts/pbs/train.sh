#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains under OpenPBS, PBS Professional or TORQUE, for as many jobs as it takes:
#   cd FOLDER_OF_THE_RUN
#   FINETUNE_ROOT=/path/to/finetune FINETUNE_DECK="DECK.toml key=value" qsub -v FINETUNE_ROOT,FINETUNE_DECK \
#     -l select=2:ncpus=8:mpiprocs=8 -l walltime=4:00:00 /path/to/finetune/jobscripts/pbs/train.sh
# The run stops in time with a checkpoint, and this file submits itself again until the run is done. PBS
# leaves ten seconds between SIGTERM and SIGKILL, too few for a save: the time limit is what counts.
#PBS -N finetune
#PBS -j oe
#PBS -r y
set -euo pipefail

cd "${PBS_O_WORKDIR:-.}"
: "${FINETUNE_ROOT:?the folder of finetune: qsub -v FINETUNE_ROOT,FINETUNE_DECK ...}"
: "${FINETUNE_DECK:?the deck and its key=value: qsub -v FINETUNE_ROOT,FINETUNE_DECK ...}"
# shellcheck disable=SC2034  # for site.sh
root=$FINETUNE_ROOT
# shellcheck source=../env/site.sh
. "$FINETUNE_ROOT/jobscripts/env/site.sh"
# shellcheck source=../env/time.sh
. "$FINETUNE_ROOT/jobscripts/env/time.sh"
# shellcheck source=../env/run.sh
. "$FINETUNE_ROOT/jobscripts/env/run.sh"

read -ra words <<<"$FINETUNE_DECK"
settings=("${words[@]:1}")
# First, because of two values for a key the last one counts.
if left=$(pbs_seconds_left); then settings=("train.max_seconds=$left" "${settings[@]}"); fi

restarts=${FINETUNE_RESTARTS:-0}
echo "finetune: job ${PBS_JOBID:-}, start $((restarts + 1)), ${left:-unlimited} s: ${words[0]} ${settings[*]}"
command=(mpirun)
# An Open MPI without PBS support does not know the nodes by itself. The file has a line for each rank.
if [ -s "${PBS_NODEFILE:-}" ]; then
  command+=(-n "$(wc -l <"$PBS_NODEFILE")" --hostfile "$PBS_NODEFILE")
fi
code=0
run_ranks "${command[@]}" "$FINETUNE_ROOT/build/finetune" "${words[0]}" "${settings[@]}" || code=$?

if asks_for_another $code; then
  if [ "$restarts" -lt "$FINETUNE_MAX_RESTARTS" ]; then
    resources=()
    for name in select nodes walltime; do
      if value=$(pbs_field "Resource_List.$name"); then resources+=(-l "$name=$value"); fi
    done
    # Sites want the second job where the first was.
    [ -z "${PBS_QUEUE:-}" ] || resources+=(-q "$PBS_QUEUE")
    if value=$(pbs_field Account_Name); then resources+=(-A "$value"); fi
    if value=$(pbs_field project) && [ "$value" != _pbs_project_default ]; then resources+=(-P "$value"); fi
    if value=$(pbs_field Resource_List.place); then resources+=(-l "place=$value"); fi
    echo "finetune: exit code $code: submitting the next job"
    export FINETUNE_ROOT FINETUNE_DECK FINETUNE_RESTARTS=$((restarts + 1))
    # afterany: the next job must not begin before this one has let go of its output.
    qsub -W "depend=afterany:$PBS_JOBID" -v FINETUNE_ROOT,FINETUNE_DECK,FINETUNE_RESTARTS \
      "${resources[@]}" "$FINETUNE_ROOT/jobscripts/pbs/train.sh"
  else
    echo "finetune: exit code $code after $restarts restarts: the same qsub goes on (FINETUNE_MAX_RESTARTS)"
  fi
fi
exit $code
