# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# Sourced by jobscripts_test.sh, in its work folder: counts checks, and puts schedulers and launchers of a few lines on
# the PATH. Needs $work and $top.
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
# Nobody's own settings.
export HOME=$work/home
unset XDG_CONFIG_HOME FINETUNE_SITE
export PATH=$work/bin:$PATH LOG=$work/log READY=$work/ready FINETUNE_BINARY=$work/bin/finetune

# How often squeue and scontrol still say nothing is in a file, a line a time.
program squeue <<'PROGRAM'
if [ -s "$LOG.silent" ]; then sed -i 1d "$LOG.silent"; exit 1; fi
case "$*" in
  *%L*) [ -n "$LEFT" ] && echo "$LEFT" ;;
  *%T*) echo "$STATE" ;;
esac
PROGRAM
program qstat <<'PROGRAM'
[ -n "$RECORD" ] && printf '%b' "$RECORD"
PROGRAM
program scontrol <<PROGRAM
case "\$*" in
  "show job"*) printf 'JobId=7 JobName=x\n   Requeue=1 Restarts=%s BatchFlag=1\n   Command=%s deck.toml\n' "\${BY_SLURM:-0}" "\${SUBMITTED:-$top/jobscripts/slurm/train.sh}" ;;
  *) if [ -s "\$LOG.silent" ]; then sed -i 1d "\$LOG.silent"; exit 1; fi; echo "scontrol \$*" >>"\$LOG" ;;
esac
PROGRAM
program qsub <<'PROGRAM'
echo "qsub $* restarts=${FINETUNE_RESTARTS:-}" >>"$LOG"
echo "$FINETUNE_WORDS" >"$LOG.words"
[ -z "$NO_QSUB" ]
PROGRAM
program finetune </dev/null
program nproc <<<'echo 8'
# An Open MPI with PBS support, or without.
program ompi_info <<'PROGRAM'
echo mca:plm:rsh:version; [ -z "$TM" ] || echo mca:plm:tm:version; echo mca:ras:slurm:version
PROGRAM
program pbs_tmrsh </dev/null
# The launcher: ends with \$CODE; where that is empty, tells of signals until one says what to end with.
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
