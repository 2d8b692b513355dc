#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The jobscripts for PBS and TORQUE with real ranks on two nodes, started by a real mpirun through stand-ins for
# both systems: a run that does not end within its time submits itself again and ends as if nothing had been.
#   pbs_jobs_test.sh FINETUNE FOLDER pbs|torque
# Exit code 77: this machine cannot make nodes; the last line says why.
set -euo pipefail
export LC_ALL=C

finetune=$1
folder=$2
flavour=$3
# shellcheck source=training.sh
. "$(dirname "${BASH_SOURCE[0]}")/training.sh"
if [ -z "${FINETUNE_IN_CLUSTER:-}" ]; then
  FINETUNE_IN_CLUSTER=1 exec "$here/two_nodes.sh" --launcher none -- "$BASH" "${BASH_SOURCE[0]}" "$@"
fi

prepare
# shellcheck source=pbs_stand_in.sh
. "$here/pbs_stand_in.sh" "$flavour"
case $flavour in
  pbs) asked=(-l select=2:ncpus=2:mpiprocs=2 -l place=scatter -l walltime=00:00:20) ;;
  torque) asked=(-l "nodes=2:ppn=2,walltime=00:00:20") ;;
esac

cd "$folder"
# Forty seconds' work at this speed. mpirun runs as root only if told; more ranks than cores yield them.
FINETUNE_ROOT=$top FINETUNE_BINARY=$folder/slow_at_first SLOW_MS=2000 \
  FINETUNE_DECK="deck.toml ${deck_settings[*]} train.output=$folder/chain" \
  FINETUNE_MPIRUN_OPTIONS="--allow-run-as-root --mca mpi_yield_when_idle 1 --report-bindings -x SLOW_MS" \
  "$server/bin/qsub" "${asked[@]}" -N chain -q short -A account \
  -v FINETUNE_ROOT,FINETUNE_BINARY,FINETUNE_DECK,FINETUNE_MPIRUN_OPTIONS,SLOW_MS "$top/jobscripts/$flavour/train.sh"
number=1
# As a server does: one after the other, however slow the machine.
while [ -d "$server/jobs/$number" ] && [ $number -lt 9 ]; do
  run_job $number
  number=$((number + 1))
done
log=$server/jobs/1/log
if [ ! -d "$server/jobs/2" ]; then
  echo "WRONG: there is no second job"
  cat "$log"
  exit 1
fi
expect "the first job stopped in time and submitted another" grep -q '^finetune: exit code 75, stopped with a new checkpoint: submitting the next job' "$log"
expect "it was stopped by its time" grep -q '^train.max_seconds = ' "$log"
expect "it ran on both nodes" grep -q '4 ranks on 2 nodes: node1 (0,1) node2 (2,3);' "$log"
expect "a rank has the core it is bound to" test "$(grep -c 'bound to socket.*\[core' "$log")" -eq 4
expect "and one thread" grep -q '1 thread per rank' "$log"
for name in queue Account_Name Job_Name script Resource_List.{select,place,walltime,nodes}; do
  [ -e "$server/jobs/1/$name" ] || continue
  seen=$(tr -d '\n' <"$server/jobs/2/$name")
  case $name in *walltime) [ "$seen" != 20 ] || seen=00:00:20 ;; esac
  expect "the second job has the first one's $name" test "$seen" = "$(tr -d '\n' <"$server/jobs/1/$name")"
done
expect "and waits for its end" test "$(attribute 2 depend)" = afterany:1.server
expect "the last job ends well" test "$code" = 0

train_reference reference
expect "the weights are those of a run in one piece" same_weights chain reference
expect "each step was made once" test "$(steps_of chain)" -eq $num_steps

[ $failures -eq 0 ] || { tail -v -n 60 "$server"/jobs/*/log; exit 1; }
