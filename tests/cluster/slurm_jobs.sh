# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# Sourced after training.sh by the tests of the jobscript in a Slurm: its jobs, and how they end.

# submit NAME OPTION... -- key=value...: a job on two nodes of two ranks, whose id goes to job[NAME].
declare -A job
submit() {
  local name=$1 options=(-N2 --ntasks-per-node=2 --time=10 --job-name="$1")
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  job[$name]=$(sbatch --parsable "${options[@]}" "$top/jobscripts/slurm/train.sh" deck.toml \
    "${deck_settings[@]}" parallel.sharding=HYBRID_SHARD train.output="$folder/$name" "$@")
}

# state JOB, restarts JOB, exit_code JOB
record() { scontrol show job "$2" 2>/dev/null | sed -n "0,/\b$1=/s/.*\b$1=\([^ ]*\).*/\1/p"; }
state() { record JobState "$1"; }
restarts() { record Restarts "$1"; }
exit_code() { record ExitCode "$1"; }
is_over() { case $(state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;; *) return 1 ;; esac }

# Whether each start went on from the step at which the one before stopped.
resumed_without_loss() {
  local stopped resumed
  stopped=$(sed -n 's/^stopped after step \([0-9]*\) of.*/\1/p' "$1")
  resumed=$(sed -n 's/^continues from .* (step \([0-9]*\) of.*/\1/p' "$1")
  printf 'stopped after step %s, went on from step %s\n' "${stopped//$'\n'/, }" "${resumed//$'\n'/, }"
  [ -n "$stopped" ] && [ "$stopped" = "$resumed" ]
}

# came_to_the_end NAME: the job of a run that was started again and lost nothing.
came_to_the_end() {
  local name=$1 id=${job[$1]} log
  wait_until "the end of $name" is_over "$id"
  log=$folder/$name-$id.log
  expect "$name is completed" test "$(state "$id")" = COMPLETED
  expect "$name was started again" test "$(restarts "$id")" -ge 1
  expect "$name went on from its last step" resumed_without_loss "$log"
  expect "$name ends with the weights of a run in one piece" same_weights "$name" reference
  expect "$name made each step once" test "$(steps_of "$name")" -eq "$num_steps"
  expect "$name trained on both nodes" grep -q '4 ranks on 2 nodes: node1 (0,1) node2 (2,3);' "$log"
  expect "$name split the model inside a node" grep -Eq '^ *sharding +HYBRID_SHARD: 2 copies' "$log"
}
