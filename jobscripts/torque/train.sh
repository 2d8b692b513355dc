#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains under TORQUE, for as many jobs as it takes, one rank per GPU or group of cores:
#   cd FOLDER_OF_THE_RUN
#   FINETUNE_ROOT=/path/to/finetune FINETUNE_DECK="DECK.toml key=value" FINETUNE_CORES_PER_RANK=8 \
#     qsub -v FINETUNE_ROOT,FINETUNE_DECK,FINETUNE_CORES_PER_RANK -l nodes=2:ppn=32:gpus=4,walltime=4:00:00 \
#     /path/to/finetune/jobscripts/torque/train.sh
# ppn are cores, so this makes four ranks a node. For a sweep also -t 1-9 and FINETUNE_SWEEP=sweep.txt in -v:
# line N of it in task N.
# The run stops in time with a checkpoint, and this file submits itself again until the run is done.
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
choose_deck "${PBS_ARRAYID:-}" "${words[@]}"
# The node file has a line for each core.
: "${FINETUNE_CORES_PER_RANK:=1}"
choose_launcher "$FINETUNE_CORES_PER_RANK"

run_in_time

if another_is_due; then
  nodes=$(pbs_field Resource_List.nodes) || nodes=${PBS_NUM_NODES:-1}:ppn=${PBS_NUM_PPN:-1}
  resources=nodes=$nodes${PBS_WALLTIME:+,walltime=$PBS_WALLTIME}
  for name in mem pmem vmem pvmem; do
    if value=$(pbs_field "Resource_List.$name"); then resources+=,$name=$value; fi
  done
  submit_again -l "$resources" "$FINETUNE_ROOT/jobscripts/torque/train.sh"
fi
exit "$code"
