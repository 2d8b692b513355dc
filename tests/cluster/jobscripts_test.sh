#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The jobscripts without a cluster: schedulers and launchers are programs of a few lines on the PATH.
#   tests/cluster/jobscripts_test.sh WORK_FOLDER
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
top=$(cd "$here/../.." && pwd -P)
work=${1:?a folder to work in}
# Variables that the jobscripts hand on to the ranks are those set here, not those around the tests.
unset -v "${!OMP_@}" "${!NCCL_@}" "${!UCX_@}" "${!FI_@}"
# shellcheck source=jobscripts_stand_ins.sh
. "$here/jobscripts_stand_ins.sh"

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

export FINETUNE_ASK_AGAIN=" " SLURM_JOB_ID=7 STATE=RUNNING CODE=0 ON_USR1="" RECORD="" LEFT=""
for left in "1:30 90" "  2-00:00:01 172801" "UNLIMITED none" " none"; do
  LEFT=${left% *}
  expect "squeue says '$LEFT'" "${left##* }" "$(slurm_seconds_left 7 || echo none)"
done

export PBS_JOBID=7.server
unset PBS_WALLTIME
expect "neither qstat nor PBS_WALLTIME" none "$(pbs_seconds_left || echo none)"
# Of this script's age, seconds tick on.
before=$SECONDS
left=$(PBS_WALLTIME=3600 pbs_seconds_left)
expect "PBS_WALLTIME" yes "$([ "$left" -ge $((3600 - SECONDS)) ] && [ "$left" -le $((3600 - before)) ] && echo yes)"
RECORD='Job Id: 7.server\n    Job_Name = x\n    Resource_List.select = 2:ncpus=8:mpi\n\tprocs=2\n    Resource_List.walltime = 01:00:00\n    resources_used.walltime = 00:00:20\n    Variable_List = A=1,\n\tResource_List.nodes = 9\n'
expect "qstat, less what is used" 3580 "$(PBS_WALLTIME=7200 pbs_seconds_left)"
expect "a long field" 2:ncpus=8:mpiprocs=2 "$(pbs_field Resource_List.select)"
expect "a field that is not there" none "$(pbs_field Resource_List.nodes || echo none)"
# More than a pipe holds.
record=$RECORD
RECORD+=$(printf '    Other = x\\n%.0s' {1..6000})
expect "a field early in a long record" 01:00:00 "$(pbs_field Resource_List.walltime || echo none)"
RECORD=$record

slurm=$top/jobscripts/slurm/train.sh
# In the queue again, or not: "CODE RESTARTS STATE requeue|stays"
while read -r code restarts state what; do
  : >"$LOG"
  LEFT=10:00 CODE=$code STATE=$state SLURM_RESTART_COUNT=$restarts FINETUNE_MAX_RESTARTS=4 "$slurm" d.toml a.b=1 >out
  expect "slurm: exit code $code is returned" "$code" $?
  expect "slurm: $code after $restarts, $state" "$what" \
    "$(grep -q '^scontrol requeue 7' "$LOG" && echo requeue || echo stays)"
done <<'CASES'
0 0 RUNNING stays
65 0 RUNNING stays
75 0 RUNNING requeue
76 2 RUNNING requeue
138 0 RUNNING requeue
138 3 RUNNING stays
75 3 RUNNING requeue
75 4 RUNNING stays
75 0 COMPLETING stays
79 0 RUNNING stays
137 0 RUNNING stays
205 0 RUNNING requeue
CASES
srun="srun --mpi=pmix --cpus-per-task=1 --cpu-bind=cores --wait=60"
expect "slurm: command" "$srun $work/bin/finetune d.toml train.max_seconds=600 a.b=1" "$(head -n 1 "$LOG")"
LEFT=UNLIMITED CODE=0 "$slurm" d.toml >out
expect "slurm: no limit" 0 "$(tail -n 1 "$LOG" | grep -c max_seconds)"
: >"$LOG"
CODE=0 SLURM_CPUS_PER_TASK=8 SLURM_GPUS_ON_NODE=4 FINETUNE_SRUN_OPTIONS="--mpi=pmix_v4 -K" "$slurm" d.toml >out
expect "slurm: GPUs, cores and the site's options" \
  "srun --mpi=pmix_v4 -K --cpus-per-task=8 --cpu-bind=cores --wait=60 --gpu-bind=none $work/bin/finetune d.toml" \
  "$(cat "$LOG")"

: >"$LOG"
CODE=0 SLURM_CPUS_ON_NODE=112 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=16 "$slurm" d.toml >out
expect "slurm: without --cpus-per-task a rank gets its part of the node" 1 "$(grep -c -e ' --cpus-per-task=14 ' "$LOG")"

# The last line says what is next, whatever the exit code: "CODE RESTARTS STATE RESTARTS_BY_SLURM TEXT"
while read -r code restarts state by_slurm text; do
  LEFT=10:00 CODE=$code STATE=$state SLURM_RESTART_COUNT=$restarts BY_SLURM=$by_slurm FINETUNE_MAX_RESTARTS=4 \
    "$slurm" d.toml >out 2>&1
  expect "slurm: last line of $code, $state" "finetune: exit code $code, $text" "$(tail -n 1 out)"
done <<'CASES'
0 0 RUNNING 0 done: the weights are in train.output of the deck; finetune export RUN OUT writes them for other programs
64 0 RUNNING 0 the command line is wrong: do what the error above says, then the same sbatch
65 0 RUNNING 0 the model, the data or a checkpoint cannot be used: do what the error above says, then the same sbatch
69 0 RUNNING 0 the ranks, a device or a library are not as the run needs them: do what the error above says, then the same sbatch
70 0 RUNNING 0 a bug of the program: please report it with this log; the same sbatch continues from the newest checkpoint, if any
71 0 RUNNING 0 loss or gradients are not finite: lower optimizer.lr or look at the data, as the error above says; a new run needs another train.output
73 0 RUNNING 0 the output cannot be written: do what the error above says, then the same sbatch
74 0 RUNNING 0 a disk failed, or a rank fell silent: the same sbatch continues from the newest checkpoint
75 0 RUNNING 0 stopped with a new checkpoint: back into the queue; the job continues by itself
76 0 RUNNING 0 stopped; an older checkpoint counts: back into the queue; the job continues by itself
75 4 RUNNING 4 stopped with a new checkpoint: after 4 restarts (FINETUNE_MAX_RESTARTS) the same sbatch continues from the newest checkpoint
75 1 COMPLETING 2 stopped with a new checkpoint: Slurm has put the job back into the queue; it continues by itself
137 1 COMPLETING 2 a rank was killed (SIGKILL), mostly because memory ran out: Slurm has put the job back into the queue; it continues by itself
75 1 COMPLETING 1 stopped with a new checkpoint: the job is COMPLETING; the same sbatch continues from the newest checkpoint
78 0 RUNNING 0 the deck is wrong, or the ranks disagree: do what the error above says, then the same sbatch
79 0 RUNNING 0 three starts made no progress: do not submit it again before the cause is found, which the logs of these starts name
137 0 RUNNING 0 a rank was killed (SIGKILL), mostly because memory ran out: see how much memory finetune plan says; with more memory or more nodes the same sbatch continues from the newest checkpoint
139 0 RUNNING 0 a rank was ended by signal 11: the same sbatch continues from the newest checkpoint
205 0 RUNNING 0 a node was lost: back into the queue; the job continues by itself
3 0 RUNNING 0 not a code of the program: the same sbatch continues from the newest checkpoint
CASES

# A step for every start before, because of what a node that died may have left of the first.
: >"$LOG"
LEFT=10:00 CODE=0 STATE=RUNNING SLURM_RESTART_COUNT=2 "$slurm" d.toml >out 2>&1
expect "slurm: as many steps before the ranks as there were starts" "--mpi=none --mpi=none --mpi=pmix" \
  "$(sed -n 's/^srun \([^ ]*\).*/\1/p' "$LOG" | paste -sd ' ')"

# A scheduler that is too busy to answer: asked for the time (once here), the state (three times), and to requeue.
printf 'no\nno\nno\nno\n' >"$LOG.silent"
: >"$LOG"
LEFT=10:00 CODE=75 FINETUNE_ASK_AGAIN="0 0 0" "$slurm" d.toml >out 2>&1
expect "slurm: silent four times: requeued" "scontrol requeue 7" "$(tail -n 1 "$LOG")"
expect "slurm: silent four times: all were used" 0 "$(grep -c '' "$LOG.silent")"
printf 'no\n%.0s' {1..9} >"$LOG.silent"
: >"$LOG"
LEFT=10:00 CODE=75 FINETUNE_ASK_AGAIN="0 0" "$slurm" d.toml >out 2>&1
expect "slurm: silent for long: exit code" 75 $?
expect "slurm: silent for long: it is said" 1 "$(grep -c 'the same sbatch continues from' out)"
: >"$LOG.silent"

# The program of an installation, and none.
mkdir -p prefix/share/finetune prefix/bin
cp -r "$top/jobscripts" prefix/share/finetune
cp bin/finetune prefix/bin
: >"$LOG"
installed=$work/prefix/share/finetune
(unset FINETUNE_BINARY && SUBMITTED=$installed/jobscripts/slurm/train.sh CODE=0 "$slurm" d.toml >out)
expect "slurm: an installed program" "$installed/../../bin/finetune" "$(cut -d ' ' -f 6 "$LOG")"
: >"$LOG"
(unset FINETUNE_BINARY && SUBMITTED=/home/me/job.sh FINETUNE_ROOT=$installed CODE=0 "$slurm" d.toml >out)
expect "slurm: a copy elsewhere, and FINETUNE_ROOT" "$installed/../../bin/finetune" "$(cut -d ' ' -f 6 "$LOG")"
(SUBMITTED=/home/me/job.sh CODE=0 "$slurm" d.toml >out 2>&1)
expect "slurm: a copy elsewhere: exit code" 69 $?
expect "slurm: it is said" 1 "$(grep -c '^error: FINETUNE_ROOT=: there are no jobscripts' out)"
mkdir -p "a b" && cp -r "$top/jobscripts" "a b"
# Software of a site may read what is not set, and fail.
cat >>"a b/jobscripts/env/site.sh" <<'SITE'
[ -z "$NOT_SET_ANYWHERE" ] && false
SITE
: >"$LOG"
SUBMITTED="$work/a b/jobscripts/slurm/train.sh" CODE=0 "$slurm" d.toml >out 2>&1
expect "slurm: a path with a space, and a site's software" 1 "$(grep -c '^srun' "$LOG")"
rm prefix/bin/finetune
(unset FINETUNE_BINARY && SUBMITTED=$installed/jobscripts/slurm/train.sh "$slurm" d.toml >out 2>&1)
expect "slurm: no program: exit code" 69 $?

# Arrays: a line of the file for each task, with an output folder of its own.
printf 'optimizer.lr=1e-3\n\nother.toml a=b c=d train.output=mine' >sweep.txt
export SLURM_ARRAY_JOB_ID=6 FINETUNE_SWEEP=$work/sweep.txt
: >"$LOG"
SLURM_ARRAY_TASK_ID=1 CODE=75 "$slurm" d.toml a.b=1 >out
expect "array: line 1" "$srun $work/bin/finetune d.toml a.b=1 train.output=$work/sweep-1 optimizer.lr=1e-3" \
  "$(head -n 1 "$LOG")"
expect "array: only this task goes back" "scontrol requeue 6_1" "$(tail -n 1 "$LOG")"
: >"$LOG"
SLURM_ARRAY_TASK_ID=3 CODE=0 "$slurm" d.toml >out
expect "array: a deck and an output of its own" \
  "$srun $work/bin/finetune other.toml train.output=$work/sweep-3 a=b c=d train.output=mine" "$(cat "$LOG")"
for index in 2 4; do
  SLURM_ARRAY_TASK_ID=$index "$slurm" d.toml >out 2>&1
  expect "array: no line $index: exit code" 64 $?
  expect "array: no line $index is said" 1 "$(grep -c "^error: $work/sweep.txt: line $index is empty" out)"
done
SLURM_ARRAY_TASK_ID=1 FINETUNE_SWEEP=/nowhere.txt CODE=0 "$slurm" d.toml >out 2>&1
expect "array: no file is said" 1 "$(grep -c '^error: /nowhere.txt: it cannot be read' out)"
unset FINETUNE_SWEEP
SLURM_ARRAY_TASK_ID=1 "$slurm" d.toml >out 2>&1
expect "array: without a file: exit code" 64 $?
unset SLURM_ARRAY_JOB_ID
"$slurm" >out 2>&1
expect "slurm: no deck: exit code" 64 $?

# signals SCRIPT SIGNAL...: starts it, sends each signal when the launcher is ready for it, waits.
signals() {
  local script=$1 pid
  shift
  rm -f "$READY" "$READY.again"
  : >"$LOG"
  CODE="" "$script" d.toml >out 2>&1 &
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
  expect "slurm: $signal: requeued" "scontrol requeue 7" "$(tail -n 1 "$LOG")"
done
# Seconds are passed in by SECONDS, so that nothing waits for them; unset, it is a variable as any other, which no clock
# changes between two of its uses.
# shellcheck disable=SC2317
stopped() {
  unset SECONDS
  # shellcheck source=../../jobscripts/env/run.sh
  . "$top/jobscripts/env/run.sh"
  kill() { printf '%s ' "$1"; }
  local ranks_pid=1 asked_early=no stops=0 second
  for second in "$@"; do
    SECONDS=$second
    ask_to_stop 2>/dev/null
  done
}
expect "a second TERM at once is that of a preemption" "-USR1 " "$(stopped 100 100)"
expect "so it is within three seconds" "-USR1 " "$(stopped 100 101 102 103)"
expect "a later one ends the ranks" "-USR1 -TERM " "$(stopped 100 104)"
expect "also after one that came too soon" "-USR1 -TERM " "$(stopped 100 101 104)"

# A signal that comes as early as it can: the launcher runs, and the script does not know its process id yet.
cat >early.sh <<'EARLY'
set -T
early() {
  trap - DEBUG
  until [ -e "$READY" ]; do sleep 0.02; done
  kill "-$EARLY" $$
}
# shellcheck disable=SC2016
trap '[ "$BASH_COMMAND" != "ranks_pid=\$!" ] || early' DEBUG
EARLY
for signal in USR1 TERM; do
  rm -f "$READY"
  : >"$LOG"
  CODE="" EARLY=$signal BASH_ENV=$work/early.sh ON_USR1=75 timeout 300 "$slurm" d.toml >out 2>&1
  expect "slurm: $signal at the start: exit code" 75 $?
  expect "slurm: $signal at the start: requeued" "USR1 scontrol requeue 7" "$(tail -n +2 "$LOG" | paste -sd ' ')"
done

# From here on PBS, whose job has a node file.
unset SLURM_JOB_ID FINETUNE_ASK_AGAIN
pbs=$top/jobscripts/pbs/train.sh
export FINETUNE_ROOT=$top FINETUNE_DECK="d.toml a.b=1" PBS_NODEFILE=$work/nodes NO_QSUB="" TM=""
export PBS_CONF_FILE=$work/none
printf 'n1.site\nn1.site\nn2.site\nn2.site\n' >nodes
# The launcher's variables, which say how it reaches other nodes; and that of the ranks.
program mpirun <<'PROGRAM'
echo "mpirun $*" >>"$LOG"
echo "${OMPI_MCA_plm_rsh_agent:-none} ${remote_start:-none} $OMP_NUM_THREADS" >"$LOG.agent"
[ -z "$CODE" ] || exit "$CODE"
trap 'exit "$ON_USR1"' USR1
: >"$READY"
while :; do sleep 0.05; done
PROGRAM

: >"$LOG"
CODE=75 "$pbs" >out
expect "pbs: exit code" 75 $?
mpirun="mpirun -n 4 --map-by ppr:2:node:PE=4 --bind-to core:overload-allowed"
carried="-x FINETUNE_BINARY -x FINETUNE_DECK -x FINETUNE_JOBSCRIPT -x FINETUNE_ROOT -x OMP_NUM_THREADS"
expect "pbs: command" \
  "$mpirun $carried --hostfile $work/nodes $work/bin/finetune d.toml train.max_seconds=3580 a.b=1" "$(head -n 1 "$LOG")"
expect "pbs: other nodes are reached through PBS, threads are the rank's cores" \
  "$top/jobscripts/env/remote_start.sh pbs_tmrsh 4" "$(cat "$LOG.agent")"
next="qsub -N finetune -j oe -v FINETUNE_BINARY,FINETUNE_JOBSCRIPT,FINETUNE_RESTARTS,FINETUNE_ROOT,FINETUNE_WORDS"
expect "pbs: the next job" \
  "$next -W depend=afterany:7.server -l select=2:ncpus=8:mpiprocs=2 -l walltime=01:00:00 $pbs restarts=1" \
  "$(tail -n 1 "$LOG")"
: >"$LOG"
# shellcheck disable=SC2030,SC2031
(
  FINETUNE_WORDS=$(cat "$LOG.words")
  unset FINETUNE_DECK
  export FINETUNE_WORDS
  TM=yes CODE=0 "$pbs" >out
)
expect "pbs: the next job's command, with a PBS that mpirun knows" \
  "$mpirun -x FINETUNE_BINARY -x FINETUNE_JOBSCRIPT -x FINETUNE_ROOT -x FINETUNE_WORDS -x OMP_NUM_THREADS $work/bin/finetune d.toml train.max_seconds=3580 a.b=1" \
  "$(cat "$LOG")"
expect "pbs: whose agent is not needed" "none none 4" "$(cat "$LOG.agent")"
for code in 0 79; do
  : >"$LOG"
  CODE=$code "$pbs" >out
  expect "pbs: $code: no next job" 0 "$(grep -c qsub "$LOG")"
done
CODE=76 FINETUNE_RESTARTS=50 "$pbs" >out
expect "pbs: not for ever" 0 "$(grep -c qsub "$LOG")"
CODE=75 NO_QSUB=1 "$pbs" >out
expect "pbs: a qsub that fails: exit code" 75 $?
expect "pbs: it is said" 1 "$(grep -c 'qsub does not work here' out)"
: >"$LOG"
CODE=205 "$pbs" >out
expect "pbs: a lost node: exit code" 205 $?
expect "pbs: a lost node: the next job goes on" 1 "$(grep -c '^qsub' "$LOG")"
expect "pbs: and nobody is told to" \
  "finetune: exit code 205, a node was lost: submitting the next job, which continues by itself" "$(tail -n 1 out)"
CODE=65 "$pbs" >out
expect "pbs: the last line of an error" \
  "finetune: exit code 65, the model, the data or a checkpoint cannot be used: do what the error above says, then the same qsub" \
  "$(tail -n 1 out)"
ON_USR1=76 signals "$pbs" TERM
expect "pbs: TERM: exit code" 76 $?
expect "pbs: a job that was deleted stays so" 0 "$(grep -c qsub "$LOG")"

# Everything that belongs to a next job, and words that no two shells would read the same way.
: >"$LOG"
RECORD='Job Id: 7[2].server\n    Account_Name = acc\n    project = p1\n    Mail_Points = ae\n    Mail_Users = me@site\n    Resource_List.filesystems = home:eagle\n    Resource_List.ncpus = 4\n    Resource_List.place = scatter\n    Resource_List.select = 1:ncpus=4\n'
printf '\nd.toml a.b="x,y;z" c=[1,2]\n' >sweep.txt
PBS_JOBID='7[2].server' PBS_ARRAY_INDEX=2 PBS_O_QUEUE=in PBS_QUEUE=routed PBS_JOBNAME=mine FINETUNE_SWEEP=sweep.txt \
  FINETUNE_QSUB_OPTIONS=--more CODE=75 "$pbs" >out
expect "pbs: resources, account, project, mail, queue, name; no wait for a task of an array" \
  "qsub -N mine -j oe -v FINETUNE_BINARY,FINETUNE_JOBSCRIPT,FINETUNE_QSUB_OPTIONS,FINETUNE_RESTARTS,FINETUNE_ROOT,FINETUNE_WORDS -q in -A acc -m ae -M me@site --more -l filesystems=home:eagle -l place=scatter -l select=1:ncpus=4 -P p1 $pbs restarts=1" \
  "$(tail -n 1 "$LOG")"
# shellcheck source=../../jobscripts/env/pbs.sh
arrived=$(. "$top/jobscripts/env/pbs.sh" && FINETUNE_WORDS=$(cat "$LOG.words") && read_words - && printf '<%s>' "${words[@]}")
expect "pbs: words arrive as they were" '<d.toml><a.b=1><train.output=sweep-2><a.b="x,y;z"><c=[1,2]>' "$arrived"

# Nodes that differ, and TORQUE, whose lines are cores.
RECORD=""
printf 'n1\nn1\nn2\n' >nodes
: >"$LOG"
CODE=0 "$pbs" >out
expect "pbs: unequal nodes" "mpirun -n 3 --map-by slot:PE=1" "$(cut -d ' ' -f 1-5 "$LOG")"
printf 'n1\nn1\nn1\nn1\nn2\nn2\nn2\nn2\n' >nodes
torque=$top/jobscripts/torque/train.sh
: >"$LOG"
RECORD='Job Id: 7.server\n    Resource_List.nodes = 2:ppn=4\n    Resource_List.pmem = 1gb\n'
FINETUNE_CORES_PER_RANK=2 PBS_WALLTIME=3600 CODE=75 "$torque" >out
expect "torque: ranks of two cores" "mpirun -n 4 --map-by ppr:2:node:PE=2" "$(head -n 1 "$LOG" | cut -d ' ' -f 1-5)"
expect "torque: the next job" \
  "qsub -N finetune -j oe -v FINETUNE_BINARY,FINETUNE_CORES_PER_RANK,FINETUNE_JOBSCRIPT,FINETUNE_RESTARTS,FINETUNE_ROOT,FINETUNE_WORDS -W depend=afterany:7.server -l nodes=2:ppn=4,walltime=3600,pmem=1gb $torque restarts=1" \
  "$(tail -n 1 "$LOG")"
: >"$LOG"
printf 'n1\n' >one
PBS_NODEFILE=$work/one FINETUNE_CORES_PER_RANK=9 CODE=0 "$pbs" >out
expect "pbs: more cores than there are bind nothing" "mpirun -n 1 --map-by ppr:1:node --bind-to none" \
  "$(cut -d ' ' -f 1-7 "$LOG")"
FINETUNE_CORES_PER_RANK=8 "$torque" >out 2>&1
expect "torque: too few cores for a rank: exit code" 64 $?
: >"$LOG"
CODE=0 FINETUNE_MPIRUN="mpiexec.other -n 2" "$torque" >out 2>&1
expect "another launcher is taken whole" 127 $?

# The agent finds the name that PBS knows.
program pbs_tmrsh <<'PROGRAM'
printf '<%s>' "$@"
PROGRAM
printf 'n1.site\nn10.site\n' >nodes
# shellcheck disable=SC2031
expect "agent" "<n10.site></usr/bin/env><PATH=/a b:$PATH><LD_LIBRARY_PATH=></bin/sh><-c>< a; b c>" \
  "$(PATH="/a b:$PATH" LD_LIBRARY_PATH='' remote_start=pbs_tmrsh "$top/jobscripts/env/remote_start.sh" n10 " a; b" c)"

echo "$checks checks, $failures failed"
exit $((failures > 0))
