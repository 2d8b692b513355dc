#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains under OpenPBS or PBS Professional, for as many jobs as it takes, one rank per GPU or group of cores:
#   cd FOLDER_OF_THE_RUN
#   FINETUNE_ROOT=/path/to/finetune FINETUNE_DECK="DECK.toml key=value" qsub -v FINETUNE_ROOT,FINETUNE_DECK \
#     -l select=2:ncpus=32:mpiprocs=4:ngpus=4 -l place=scatter -l walltime=4:00:00 \
#     /path/to/finetune/jobscripts/pbs/train.sh
# For a sweep also -J 1-9 and FINETUNE_SWEEP=sweep.txt in -v: line N of it in task N.
# The run stops in time with a checkpoint, and this file submits itself again until the run is done. PBS
# leaves ten seconds between SIGTERM and SIGKILL, too few for a save: the time limit is what counts.
#PBS -N finetune
#PBS -S /bin/bash
#PBS -j oe
#PBS -r y
set -euo pipefail

cd "${PBS_O_WORKDIR:-.}"
: "${FINETUNE_ROOT:?the folder of finetune: qsub -v FINETUNE_ROOT,FINETUNE_DECK ...}"
# shellcheck source=../env/job.sh
. "$FINETUNE_ROOT/jobscripts/env/job.sh"
# shellcheck source=../env/pbs.sh
. "$FINETUNE_ROOT/jobscripts/env/pbs.sh"

find_binary
read_words "$@"
choose_deck "${PBS_ARRAY_INDEX:-}" "${words[@]}"
# The node file has a line for each rank.
: "${FINETUNE_CORES_PER_RANK:=$(cores_of_chunk)}"
choose_launcher 1

run_in_time

if another_is_due; then
  resources=()
  # All that were asked for; the others PBS itself reckons from the chunks.
  while read -r name; do
    case $name in mem | mpiprocs | ncpus | ngpus | nodect | nodes | ompthreads | vmem) continue ;; esac
    if value=$(pbs_field "Resource_List.$name"); then resources+=(-l "$name=$value"); fi
  done < <(pbs_resources)
  if value=$(pbs_field project) && [ "$value" != _pbs_project_default ]; then resources+=(-P "$value"); fi
  submit_again "${resources[@]}" "$FINETUNE_ROOT/jobscripts/pbs/train.sh"
fi
exit "$code"
