#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shipped jobscript in a real Slurm of two nodes that takes the nodes away: for a job of a partition that comes
# first, at once and after a grace time of 30 s, and because one of them has died.
#   slurm_preempted_test.sh FINETUNE FOLDER
# Exit code 77: this machine cannot have such a Slurm; the last line says why.
set -euo pipefail
export LC_ALL=C

finetune=$1
folder=$2
# shellcheck source=training.sh
. "$(dirname "${BASH_SOURCE[0]}")/training.sh"
if [ -z "${FINETUNE_IN_CLUSTER:-}" ]; then
  FINETUNE_IN_CLUSTER=1 exec "$here/two_nodes.sh" --launcher preempting -- "$BASH" "${BASH_SOURCE[0]}" "$@"
fi
# shellcheck source=slurm_jobs.sh
. "$here/slurm_jobs.sh"

prepare
cd "$folder"
export FINETUNE_BINARY=$finetune
slow="--export=ALL,FINETUNE_BINARY=$folder/slow_at_first"
last_lines() { grep '^finetune: exit code' "$folder/$1-${job[$1]}.log"; }
come_urgently() { urgent=$(sbatch --parsable --partition=urgent -N2 --ntasks-per-node=2 --output=urgent.log --wrap true); }
train_reference reference

# Who comes by urgent takes all nodes from jobs of the other partitions (two_nodes.sh): with SIGTERM twice at once.
submit preempted "$slow" --partition=preempted --
wait_until "steps before the preemption" has_steps preempted 3
come_urgently
came_to_the_end preempted
expect "the urgent job had its turn" test "$(state "$urgent")" = COMPLETED
expect "it was Slurm that put the preempted one back, and nobody is told to submit it" test "$(last_lines preempted | sed -n 1p)" = \
  "finetune: exit code 75, stopped with a new checkpoint: Slurm has put the job back into the queue; it continues by itself"

# With a grace time SIGTERM comes first, and the nodes are taken 30 s later if the job still has them.
submit graceful "$slow" --partition=graceful --
wait_until "steps before the warning" has_steps graceful 3
come_urgently
came_to_the_end graceful
expect "the urgent job had its turn" test "$(state "$urgent")" = COMPLETED
expect "the job went back by itself, in time" test "$(last_lines graceful | sed -n 1p)" = \
  "finetune: exit code 75, stopped with a new checkpoint: back into the queue; the job continues by itself"

# Steps of micro-batches that take seconds: the one that SIGTERM meets is left.
cat >slow_passes <<EOF
#!$BASH
[ "\${SLURM_RESTART_COUNT:-0}" != 0 ] || export FINETUNE_FAULT=step.fwd:*:*:slow=2000
exec "$finetune" "\$@"
EOF
chmod +x slow_passes
of_many=(train.global_batch=32 train.micro_batch=1 train.max_steps=3 parallel.sharding=FULL_SHARD)
train_reference long_reference "${of_many[@]}"
submit long "--export=ALL,FINETUNE_BINARY=$folder/slow_passes" --partition=preempted -- "${of_many[@]}"
wait_until "a step of many micro-batches" has_steps long 1
come_urgently
wait_until "the end of long" is_over "${job[long]}"
expect "long is completed" test "$(state "${job[long]}")" = COMPLETED
expect "a step was left between two micro-batches" \
  grep -Eq 'step [23] is left after [1-9] of its [2-9] micro-batches, the last checkpoint is from step [12];' "long-${job[long]}.log"
expect "and nothing was lost" resumed_without_loss "long-${job[long]}.log"
expect "it ends with the weights of a run in one piece" same_weights long long_reference

# A node that dies: nothing comes from it any more, and its processes are gone without a word.
kill_node() {
  local node process
  /run/enter "$1" ip link set eth0 down
  node=$(stat -L -c %i "/run/$1/uts")
  for process in /proc/[0-9]*; do
    [ "$(stat -L -c %i "$process/ns/uts" 2>/dev/null)" != "$node" ] || kill -KILL "${process#/proc/}" 2>/dev/null || true
  done
}
submit dying "$slow" --
wait_until "steps before the node dies" has_steps dying 5
kill_node node2
scontrol update NodeName=node2 State=DOWN Reason=died
was_taken_back() { [ "$(restarts "${job[dying]}")" -ge 1 ]; }
wait_until "Slurm to take the job back" was_taken_back
expect "what a killed step leaves is there" test -e "/run/node2/spool/stepd.slurm.pmix.${job[dying]}.0"
/run/enter node2 ip link set eth0 up
/run/enter node2 slurmd -D -N node2 &>>/run/log/node2 &
answers() {
  scontrol update NodeName=node2 State=RESUME 2>/dev/null || true
  [[ $(sinfo -h -n node2 -p all -o %t) =~ ^(idle|mix|alloc|comp)$ ]]
}
wait_until "the node to come back" answers
wait_until "the end of dying" is_over "${job[dying]}"
expect "the job of the dead node is completed" test "$(state "${job[dying]}")" = COMPLETED
expect "it ends with the weights of a run in one piece" same_weights dying reference
expect "it made each step once" test "$(steps_of dying)" -eq $num_steps
expect "and says that it is done" test "$(last_lines dying | tail -n 1 | cut -d : -f 2)" = " exit code 0, done"

[ $failures -eq 0 ] || give_up
