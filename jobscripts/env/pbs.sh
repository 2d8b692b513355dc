# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts for PBS and TORQUE after job.sh: what both of them do.

# A job has a bare PATH; qsub, qstat and pbs_tmrsh lie here. First, because Slurm brings programs of these
# names too.
pbs_folder=$(sed -n 's/^PBS_EXEC=//p' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null | tail -n 1) || pbs_folder=
[ -z "$pbs_folder" ] || PATH=$pbs_folder/bin:$PATH

# The qsub that comes with Slurm starts jobs without TORQUE's variables, and after `qsub -v` without an
# environment for their ranks.
if [ -n "${SLURM_JOB_ID:-}" ]; then
  export SLURM_EXPORT_ENV=ALL
  PBS_JOBID=$SLURM_JOB_ID
  PBS_JOBNAME=$SLURM_JOB_NAME
  PBS_QUEUE=$SLURM_JOB_PARTITION
  PBS_ARRAYID=${SLURM_ARRAY_TASK_ID:-}
  PBS_NUM_NODES=$SLURM_JOB_NUM_NODES
  PBS_NUM_PPN=$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))
  PBS_WALLTIME=$(seconds_of "$(squeue -h -j "$SLURM_JOB_ID" -o %l | tr -d ' ')") || PBS_WALLTIME=
fi

# read_words ARGUMENT...: sets words to the deck and its key=value: those of the job before, the script's own
# arguments, or those of FINETUNE_DECK.
read_words() {
  words=("$@")
  if [ -n "${FINETUNE_WORDS:-}" ]; then
    mapfile -t words < <(printf '%b' "$(fold -w 2 <<<"$FINETUNE_WORDS" | sed 's/^/\\x/' | tr -d '\n')")
  elif [ $# -eq 0 ]; then
    read -ra words <<<"${FINETUNE_DECK:-}"
  fi
}

# Cores of a rank, as the first chunk of `-l select=` has them.
cores_of_chunk() {
  { pbs_field Resource_List.select || true; } | awk '
    { ncpus = mpiprocs = 1
      sub(/[+].*/, "")
      num_parts = split($0, parts, ":")
      for (i = 1; i <= num_parts; i++) {
        if (parts[i] ~ /^ncpus=/) ncpus = substr(parts[i], 7)
        if (parts[i] ~ /^mpiprocs=/) mpiprocs = substr(parts[i], 10)
      } }
    END { cores = mpiprocs > 0 ? int(ncpus / mpiprocs) : 1; print (cores > 0 ? cores : 1) }'
}

# A number for each node: its lines in the node file.
lines_of_nodes() {
  local i
  if [ -s "${PBS_NODEFILE:-}" ]; then
    sort "$PBS_NODEFILE" | uniq -c | awk '{ print $1 }'
  else
    for ((i = 0; i < ${PBS_NUM_NODES:-1}; i++)); do echo "${PBS_NUM_PPN:-1}"; done
  fi
}

# choose_launcher LINES: sets launcher to mpirun and its options. A rank has LINES lines of the node file.
choose_launcher() {
  local lines_a_rank=$1 lines node ranks=0 map name options
  # Not what PBS says: that is for a job of one process.
  export OMP_NUM_THREADS=$FINETUNE_CORES_PER_RANK
  read -ra launcher <<<"$FINETUNE_MPIRUN"
  [ ${#launcher[@]} -eq 0 ] || return 0

  mapfile -t lines < <(lines_of_nodes)
  map=ppr:$((lines[0] / lines_a_rank)):node
  for node in "${lines[@]}"; do
    ranks=$((ranks + node / lines_a_rank))
    [ "$node" -eq "${lines[0]}" ] || map=slot
  done
  [ $ranks -gt 0 ] || refuse 64 "FINETUNE_CORES_PER_RANK=$FINETUNE_CORES_PER_RANK" "a node has no rank" \
    "it gives the job ${lines[*]} cores" "Ask for as many cores per node (ppn) as its ranks need together."
  launcher=(mpirun -n "$ranks")
  # PBS may have been told of more cores than a node has, and then there is nothing to bind to. Several jobs on
  # a node need their cpusets; how well ranks are bound, `finetune check` says.
  if [ "$FINETUNE_CORES_PER_RANK" -gt "$(nproc --all)" ]; then
    launcher+=(--map-by "$map" --bind-to none)
  else
    launcher+=(--map-by "$map:PE=$FINETUNE_CORES_PER_RANK" --bind-to core:overload-allowed)
  fi
  # Ranks on other nodes get no other variables of this job.
  for name in $(compgen -e); do
    case $name in OMP_* | NCCL_* | UCX_* | FI_* | FINETUNE_*) launcher+=(-x "$name") ;; esac
  done
  if [ -z "${SLURM_JOB_ID:-}" ] && ! mpirun_knows_pbs; then start_through_pbs "${#lines[@]}"; fi
  read -ra options <<<"$FINETUNE_MPIRUN_OPTIONS"
  launcher+=("${options[@]}")
}

# Whether mpirun finds the nodes and starts on them without help.
mpirun_knows_pbs() {
  # One of them is not there: Open MPI 4 has no prte_info.
  { ompi_info --parsable || true; prte_info --parsable || true; } 2>/dev/null | grep '^mca:plm:tm:' >/dev/null
}

# start_through_pbs NODES: for an mpirun that would take ssh (Open MPI 4 and 5 name things differently).
start_through_pbs() {
  local prefix
  launcher+=(--hostfile "$PBS_NODEFILE")
  [ "$1" -gt 1 ] || return 0
  remote_start=$FINETUNE_REMOTE_START
  if [ -z "$remote_start" ]; then
    if command -v pbs_tmrsh >/dev/null; then
      remote_start=pbs_tmrsh
    elif command -v pbsdsh >/dev/null; then
      remote_start="pbsdsh -h"
    else
      refuse 69 mpirun "it cannot reach the other nodes" \
        "it was built without support for PBS, and there is neither pbs_tmrsh nor pbsdsh" \
        "Take an Open MPI that was built --with-tm, or set FINETUNE_REMOTE_START in jobscripts/env/site.sh."
    fi
  fi
  export remote_start  # for remote_start.sh
  for prefix in OMPI_MCA_plm_rsh PRTE_MCA_plm_ssh; do
    export ${prefix}_agent="$root/jobscripts/env/remote_start.sh"
    # Only on the first node is there a node file to start others with.
    export ${prefix}_no_tree_spawn=1 ${prefix}_num_concurrent="$1"
  done
  # What leaves its session is lost to PBS.
  export OMPI_MCA_orte_leave_session_attached=1 PRTE_MCA_prte_leave_session_attached=1
}

# Sets code to how the ranks ended.
run_in_time() {
  local left limit=()
  if left=$(pbs_seconds_left); then limit=("train.max_seconds=$left"); fi
  restarts=${FINETUNE_RESTARTS:-0}
  code=0
  echo "finetune: job ${PBS_JOBID:-}, start $((restarts + 1)), ${left:-unlimited} s: $deck ${settings[*]}"
  # The limit first, because of two values for a key the last one counts.
  run_ranks "${launcher[@]}" "$FINETUNE_BINARY" "$deck" "${limit[@]}" "${settings[@]}" || code=$?
}

# Whether there is more to do, which another job may do. Not after a SIGTERM: that is what qdel sends, and
# before it takes a job back into the queue, PBS.
another_is_due() {
  if ! asks_for_another "$code" "$restarts"; then
    what_next "$code" "the same qsub"
  elif [ "$stops" -gt 0 ]; then
    what_next "$code" "after this SIGTERM, unless the server runs the job again by itself, the same qsub"
  elif [ "$restarts" -ge "$FINETUNE_MAX_RESTARTS" ]; then
    what_next "$code" "after $restarts restarts (FINETUNE_MAX_RESTARTS) the same qsub"
  else
    return 0
  fi
  return 1
}

# submit_again OPTION... SCRIPT: the next job, with this one's queue, account, name and FINETUNE_ variables.
submit_again() {
  local value names options=() more
  # In hexadecimal, because each qsub reads commas, quotes and spaces in a value its own way.
  FINETUNE_WORDS=$(printf '%s\n' "$deck" "${settings[@]}" | od -An -v -t x1 | tr -d ' \n')
  FINETUNE_RESTARTS=$((restarts + 1))
  export FINETUNE_ROOT FINETUNE_WORDS FINETUNE_RESTARTS
  unset FINETUNE_DECK FINETUNE_SWEEP
  names=$(compgen -e FINETUNE_ | paste -sd ,)
  # The queue that qsub was told, which may have routed the job to another.
  value=${PBS_O_QUEUE:-${PBS_QUEUE:-}}
  [ -z "$value" ] || options+=(-q "$value")
  if value=$(pbs_field Account_Name); then options+=(-A "$value"); fi
  if value=$(pbs_field Mail_Points); then options+=(-m "$value"); fi
  if value=$(pbs_field Mail_Users); then options+=(-M "$value"); fi
  read -ra more <<<"$FINETUNE_QSUB_OPTIONS"
  options+=("${more[@]}")
  # The next job begins when this one has let go of its output. A task of an array cannot be waited for.
  [[ ${PBS_JOBID:-} == *\[* ]] || options+=(-W "depend=afterany:$PBS_JOBID")
  echo "finetune: exit code $code, $(what_ended "$code"): submitting the next job, which continues by itself"
  qsub -N "${PBS_JOBNAME:-finetune}" -j oe -v "$names" "${options[@]}" "$@" ||
    what_next "$code" "qsub does not work here; the same qsub as the first"
}
