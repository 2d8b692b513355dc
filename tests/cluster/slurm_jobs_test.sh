#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shipped jobscript in a real Slurm of two nodes with two ranks each: a run that is preempted, one that
# meets its time limit, one that is cancelled, a sweep, and one that is not started for ever.
#   slurm_jobs_test.sh FINETUNE FOLDER
# Exit code 77: this machine cannot have such a Slurm; the last line says why.
set -euo pipefail
export LC_ALL=C

finetune=$1
folder=$2
# shellcheck source=training.sh
. "$(dirname "${BASH_SOURCE[0]}")/training.sh"
if [ -z "${FINETUNE_IN_CLUSTER:-}" ]; then
  FINETUNE_IN_CLUSTER=1 exec "$here/two_nodes.sh" --launcher sbatch -- "$BASH" "${BASH_SOURCE[0]}" "$@"
fi

# shellcheck source=slurm_jobs.sh
. "$here/slurm_jobs.sh"

prepare
cd "$folder"
export FINETUNE_BINARY=$finetune
slow="--export=ALL,FINETUNE_BINARY=$folder/slow_at_first"

# Slurm looks at time limits twice a minute, so the run that meets one goes first, beside the others. It gets its
# limit once it is at work, however slow the machine: the signal then comes within a minute and a half, in which
# it does not come to its end at this speed.
submit limited "$slow,SLOW_MS=6000" --signal=B:USR1@50 --
submit preempted "$slow" --
wait_until "steps before the preemption" has_steps preempted 3
scontrol requeue "${job[preempted]}"

wait_until "steps before the time limit" has_steps limited 1
scontrol update JobId="${job[limited]}" TimeLimit=$((2 + $(record RunTime "${job[limited]}" | awk -F : '{ print 60 * $1 + $2 }')))

submit endless --export=ALL,FINETUNE_MAX_RESTARTS=1 -- train.stop_after_steps=4
submit cancelled "$slow,SLOW_MS=3000" --
# In the midst: it saves what it has, and does not come back.
wait_until "steps before the end of cancelled" has_steps cancelled 2
scancel "${job[cancelled]}"
train_reference reference
wait_until "the end of cancelled" is_over "${job[cancelled]}"
echo "it is" "$(state "${job[cancelled]}")" after "$(restarts "${job[cancelled]}")" restarts
expect "a cancelled job stays cancelled" test "$(state "${job[cancelled]}") $(restarts "${job[cancelled]}")" = "CANCELLED 0"

came_to_the_end preempted

# Once is enough: on a slow machine the signal could meet start after start before its first step.
was_started_again() { [ "$(restarts "$1")" -ge 1 ]; }
wait_until "the time limit" was_started_again "${job[limited]}"
# Where this comes late the job, which is fast by now, is over, and scontrol fails.
scontrol update JobId="${job[limited]}" TimeLimit=10 || echo "it has ended in this time"

wait_until "the end of endless" is_over "${job[endless]}"
expect "a job that does not finish is given up" \
  test "$(state "${job[endless]}") $(restarts "${job[endless]}") $(exit_code "${job[endless]}")" = "FAILED 1 75:0"
expect "which is said" grep -q "after 1 restarts (FINETUNE_MAX_RESTARTS) the same sbatch continues" "endless-${job[endless]}.log"
expect "each of its starts made progress" test "$(steps_of endless)" -eq 8

# A sweep: two tasks on a node each. The first is stopped half way and goes back into the queue alone.
printf '%s\n' train.stop_after_steps=12 optimizer.lr=5e-3 >sweep.txt
sweep=$(FINETUNE_SWEEP=$folder/sweep.txt sbatch --parsable --array=1-2 -N1 --ntasks-per-node=2 --time=10 --job-name=sweep \
  "$top/jobscripts/slurm/train.sh" deck.toml "${deck_settings[@]}")
train_reference other optimizer.lr=5e-3
for task in 1 2; do wait_until "the end of task $task" is_over "${sweep}_$task"; done
expect "both tasks of a sweep are completed" test "$(state "${sweep}_1") $(state "${sweep}_2")" = "COMPLETED COMPLETED"
expect "only the first was started again" test "$(restarts "${sweep}_1") $(restarts "${sweep}_2")" = "1 0"
expect "the first has an output of its own and its weights" same_weights sweep-1 reference
expect "so has the second" same_weights sweep-2 other
expect "which are others" different_weights reference other

came_to_the_end limited

# What `finetune plan` prints is a jobscript as it is; here the nodes are smaller.
sed 's/^cores_per_node *=.*/cores_per_node = 2/' "$top/inputs/machines/cpu-spr-112.toml" >machine.toml
"$finetune" plan deck.toml train.max_steps=6 --ranks 4 --ranks-per-node 2 --machine machine.toml --jobscript slurm >planned.sh
planned=$(sed '/^#SBATCH --mem=/d' planned.sh | sbatch --parsable)
wait_until "the end of the printed job" is_over "$planned"
expect "the printed jobscript trains" test "$(state "$planned")" = COMPLETED
expect "on both nodes" grep -q '4 ranks on 2 nodes' "finetune-$planned.log"
expect "as long as the plan was told" grep -q '^step 6/6 ' "finetune-$planned.log"

[ $failures -eq 0 ] || give_up
