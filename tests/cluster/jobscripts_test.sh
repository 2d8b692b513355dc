#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The jobscripts without a cluster: schedulers and launchers are programs of a few lines on the PATH.
#   tests/cluster/jobscripts_test.sh WORK_FOLDER
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
top=$(cd "$here/../.." && pwd -P)
work=${1:?a folder to work in}
failures=0
checks=0

# expect WHAT EXPECTED ACTUAL
expect() {
  checks=$((checks + 1))
  [ "$2" = "$3" ] && return
  failures=$((failures + 1))
  printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
}

rm -rf "$work"
mkdir -p "$work/bin"
cd "$work" || exit 1

# program NAME: makes a program of what comes on stdin.
program() {
  { echo '#!/usr/bin/env bash'; cat; } >"bin/$1"
  chmod +x "bin/$1"
}
export PATH=$work/bin:$PATH LOG=$work/log READY=$work/ready

program squeue <<'PROGRAM'
case "$*" in
  *%L*) [ -n "$LEFT" ] && echo "$LEFT" ;;
  *%T*) echo "$STATE" ;;
esac
PROGRAM
program qstat <<'PROGRAM'
[ -n "$RECORD" ] && printf '%b' "$RECORD"
PROGRAM
for name in scontrol qsub; do
  program $name <<PROGRAM
case "\$*" in
  "show job"*) printf 'JobId=7 JobName=x\n   Command=$top/jobscripts/slurm/train.sh deck.toml\n' ;;
  *) echo "$name \$* restarts=\${FINETUNE_RESTARTS:-}" >>"\$LOG" ;;
esac
PROGRAM
done
# The launcher: ends with \$CODE; without it, tells of signals until one says what to end with.
for name in srun mpirun; do
  program $name <<PROGRAM
echo "$name \$*" >>"\$LOG"
[ -z "\$CODE" ] || exit "\$CODE"
trap 'echo USR1 >>"\$LOG"; [ -z "\$ON_USR1" ] || exit "\$ON_USR1"; : >"\$READY.again"' USR1
trap 'echo TERM >>"\$LOG"; exit 143' TERM
trap 'echo INT >>"\$LOG"' INT
: >"\$READY"
while :; do sleep 0.05; done
PROGRAM
done

# shellcheck source=../../jobscripts/env/time.sh
. "$top/jobscripts/env/time.sh"

while read -r text seconds; do
  expect "seconds_of $text" "$seconds" "$(seconds_of "$text" || echo none)"
done <<'FORMS'
1-00:00:00 86400
10-23:59:08 950348
23:59:59 86399
08:09:09 29349
100:00:00 360000
9:08 548
0:00 0
3600 3600
UNLIMITED none
INVALID none
NOT_SET none
1-2 none
1-02:03 none
-1:00 none
1:2:3:4 none
1:: none
12h none
99999999999999999999 none
FORMS
expect "seconds_of nothing" none "$(seconds_of "" || echo none)"

export SLURM_JOB_ID=7 STATE=RUNNING CODE="" ON_USR1="" RECORD="" LEFT=""
for left in "1:30 90" "  2-00:00:01 172801" "UNLIMITED none" " none"; do
  LEFT=${left% *}
  expect "squeue says '$LEFT'" "${left##* }" "$(slurm_seconds_left || echo none)"
done

export PBS_JOBID=7.server
unset PBS_WALLTIME
expect "neither qstat nor PBS_WALLTIME" none "$(pbs_seconds_left || echo none)"
SECONDS=0
expect "PBS_WALLTIME" 3600 "$(PBS_WALLTIME=3600 pbs_seconds_left)"
RECORD='Job Id: 7.server\n    Job_Name = x\n    Resource_List.select = 2:ncpus=8:mpi\n\tprocs=8\n    Resource_List.walltime = 01:00:00\n    resources_used.walltime = 00:00:20\n    Variable_List = A=1,\n\tResource_List.nodes = 9\n'
expect "qstat, less what is used" 3580 "$(PBS_WALLTIME=7200 pbs_seconds_left)"
expect "a long field" 2:ncpus=8:mpiprocs=8 "$(pbs_field Resource_List.select)"
expect "a field that is not there" none "$(pbs_field Resource_List.nodes || echo none)"

slurm=$top/jobscripts/slurm/train.sh
# In the queue again, or not: "CODE RESTARTS STATE requeue|stays"
while read -r code restarts state what; do
  : >"$LOG"
  LEFT=10:00 CODE=$code STATE=$state SLURM_RESTART_COUNT=$restarts FINETUNE_MAX_RESTARTS=3 "$slurm" d.toml a.b=1 >out
  expect "slurm: exit code $code is returned" "$code" $?
  expect "slurm: $code after $restarts, $state" "$what" \
    "$(grep -q '^scontrol requeue 7' "$LOG" && echo requeue || echo stays)"
done <<'CASES'
0 0 RUNNING stays
65 0 RUNNING stays
75 0 RUNNING requeue
76 2 RUNNING requeue
75 3 RUNNING stays
75 0 COMPLETING stays
79 0 RUNNING stays
137 0 RUNNING stays
CASES
expect "slurm: command" "srun --mpi=pmix --cpus-per-task=1 $top/build/finetune d.toml train.max_seconds=600 a.b=1" \
  "$(sed "s|/jobscripts/slurm/../..||" "$LOG" | head -n 1)"
LEFT=UNLIMITED CODE=0 "$slurm" d.toml >out
expect "slurm: no limit" 0 "$(tail -n 1 "$LOG" | grep -c max_seconds)"

# signals SCRIPT SIGNAL...: starts it, sends each signal when the launcher is ready for it, waits.
signals() {
  local script=$1 pid
  shift
  rm -f "$READY" "$READY.again"
  : >"$LOG"
  "$script" d.toml >out 2>&1 &
  pid=$!
  local event=$READY signal
  for signal in "$@"; do
    while [ ! -e "$event" ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
    kill "-$signal" $pid
    event=$READY.again
  done
  wait $pid
}

LEFT=10:00
for signal in USR1 TERM; do
  ON_USR1=75 signals "$slurm" $signal
  expect "slurm: $signal: exit code" 75 $?
  expect "slurm: $signal reaches srun as USR1" USR1 "$(sed -n 2p "$LOG")"
  expect "slurm: $signal: requeued" "scontrol requeue 7 restarts=" "$(tail -n 1 "$LOG")"
done
signals "$slurm" TERM TERM
expect "slurm: the second TERM: exit code" 143 $?
expect "slurm: the second TERM is one" "USR1 TERM" "$(tail -n +2 "$LOG" | paste -sd ' ')"

pbs=$top/jobscripts/pbs/train.sh
export FINETUNE_ROOT=$top FINETUNE_DECK="d.toml a.b=1"
printf 'n1\nn1\nn2\nn2\n' >nodes
: >"$LOG"
CODE=75 PBS_NODEFILE=$work/nodes "$pbs" >out
expect "pbs: exit code" 75 $?
expect "pbs: command" "mpirun -n 4 --hostfile $work/nodes $top/build/finetune d.toml train.max_seconds=3580 a.b=1" \
  "$(head -n 1 "$LOG")"
expect "pbs: the next job" \
  "qsub -W depend=afterany:7.server -v FINETUNE_ROOT,FINETUNE_DECK,FINETUNE_RESTARTS -l select=2:ncpus=8:mpiprocs=8 -l walltime=01:00:00 $pbs restarts=1" \
  "$(tail -n 1 "$LOG")"
for code in 0 79; do
  : >"$LOG"
  CODE=$code "$pbs" >out
  expect "pbs: $code: no next job" 0 "$(grep -c qsub "$LOG")"
done
CODE=76 FINETUNE_RESTARTS=50 "$pbs" >out
expect "pbs: not for ever" 0 "$(grep -c qsub "$LOG")"
ON_USR1=76 signals "$pbs" TERM
expect "pbs: TERM: exit code" 76 $?

echo "$checks checks, $failures failed"
exit $((failures > 0))
