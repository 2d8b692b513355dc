# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the jobscripts: how many seconds the scheduler still gives this job.

# seconds_of TEXT: seconds in a time as schedulers write it: D-HH:MM:SS, HH:MM:SS, MM:SS, or a number
# of seconds. Prints nothing and fails for all else: UNLIMITED, INVALID, NOT_SET, nothing.
seconds_of() {
  local days=0 text=$1 part total=0
  if [[ $text =~ ^([0-9]{1,6})-([0-9:]+)$ ]]; then
    days=${BASH_REMATCH[1]}
    text=${BASH_REMATCH[2]}
    [[ $text =~ ^[0-9]+:[0-9]+:[0-9]+$ ]] || return 1
  fi
  [[ $text =~ ^[0-9]{1,9}(:[0-9]{1,9}){0,2}$ ]] || return 1
  local IFS=:
  for part in $text; do
    total=$((60 * total + 10#$part))
  done
  echo $((86400 * 10#$days + total))
}

# slurm_seconds_left JOB: nothing, and failure, where the job has no limit or squeue does not answer.
slurm_seconds_left() {
  local left
  left=$(again squeue -h -j "$1" -o %L 2>/dev/null) || return 1
  seconds_of "${left//[[:space:]]/}"
}

# again COMMAND...: once more after a pause where a scheduler does not answer, which a busy one may do.
again() {
  local pause
  for pause in ${FINETUNE_ASK_AGAIN:-}; do
    ! "$@" 2>/dev/null || return 0
    sleep "$pause"
  done
  "$@"
}

# pbs_field NAME: a field of `qstat -f`, whose long lines go on after a tab. To its end, found or not: a qstat that
# cannot say all that it has to would fail.
pbs_field() {
  qstat -f "${PBS_JOBID:-}" 2>/dev/null |
    awk -v name="$1" '
      /^\t/ { if (goes_on) value = value substr($0, 2); next }
      { goes_on = 0
        line = $0; sub(/^ +/, "", line)
        if (!found && index(line, name " = ") == 1) { found = goes_on = 1; value = substr(line, length(name) + 4) } }
      END { if (!found) exit 1; print value }'
}

# pbs_resources: the names of all that this job asked for, a line each.
pbs_resources() {
  qstat -f "${PBS_JOBID:-}" 2>/dev/null | sed -n 's/^ *Resource_List\.\([^ ]*\) = .*/\1/p'
}

# pbs_seconds_left: from qstat, less what the job has used; otherwise PBS_WALLTIME, which TORQUE sets,
# less the age of this script.
pbs_seconds_left() {
  local limit used
  if limit=$(pbs_field Resource_List.walltime) && limit=$(seconds_of "$limit"); then
    used=$(pbs_field resources_used.walltime) && used=$(seconds_of "$used") || used=$SECONDS
  else
    limit=$(seconds_of "${PBS_WALLTIME:-}") || return 1
    used=$SECONDS
  fi
  echo $((limit > used ? limit - used : 0))
}
