# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# Sourced by pbs_jobs_test.sh on the first of two nodes: PBS ($1 = pbs) or TORQUE ($1 = torque) as a job sees
# them. Their commands are programs of a few lines; a job gets the variables and the node file that the real
# ones set and nothing else, at home, with an end to its time that nobody enforces.

server=$folder/server
flavour=$1
mkdir -p "$server/bin" "$server/jobs" "$folder/home"
export PBS_STAND_IN=$server

# command_of_server NAME: makes a program of what comes on stdin.
command_of_server() {
  { printf '#!%s\nserver=%s\nflavour=%s\nset -euo pipefail\n' "$BASH" "$server" "$flavour"; cat; } >"$server/bin/$1"
  chmod +x "$server/bin/$1"
}

# A job is a folder: script, one file for each attribute, and the variables of -v.
command_of_server qsub <<'PROGRAM'
number=$(($(find "$server/jobs" -mindepth 1 -maxdepth 1 | wc -l) + 1))
job=$server/jobs/$number
mkdir "$job"
: >"$job/variables"
while getopts A:N:P:W:j:l:q:v: option; do
  case $option in
    v)
      IFS=, read -ra names <<<"$OPTARG"
      # Without a value it is that of qsub's environment.
      for name in "${names[@]}"; do
        case $name in *=*) printf '%s\0' "$name" ;; *) printf '%s\0' "$name=${!name}" ;; esac
      done >>"$job/variables"
      ;;
    l)
      IFS=, read -ra resources <<<"$OPTARG"
      for resource in "${resources[@]}"; do echo "${resource#*=}" >"$job/Resource_List.${resource%%=*}"; done
      ;;
    W) echo "${OPTARG#*=}" >"$job/${OPTARG%%=*}" ;;
    N) echo "$OPTARG" >"$job/Job_Name" ;;
    A) echo "$OPTARG" >"$job/Account_Name" ;;
    q) echo "$OPTARG" >"$job/queue" ;;
    *) echo "$OPTARG" >"$job/$option" ;;
  esac
done
shift $((OPTIND - 1))
cp "$1" "$job/script"
pwd >"$job/workdir"
echo "$number.server"
PROGRAM

# Lines of more than 78 characters go on after a tab.
command_of_server qstat <<'PROGRAM'
[ "$1" = -f ] && job=$server/jobs/${2%.server}
echo "Job Id: $2"
for file in "$job"/{Job_Name,queue,Account_Name,Resource_List.*,depend}; do
  [ -e "$file" ] || continue
  echo "    ${file##*/} = $(cat "$file")" | fold -w 78 | sed '2,$s/^/\t/'
done
printf '    Variable_List = %s\n' "$(tr '\0' ',' <"$job/variables")" | fold -w 78 | sed '2,$s/^/\t/'
PROGRAM

# start_on HOST WORD...: what both systems do to start a task: the words are a program and its arguments, no
# shell reads them; it gets the job's variables, not those of the caller, and starts at home.
# shellcheck disable=SC2016  # for the program
start_on='
  [ -n "${PBS_ENVIRONMENT:-}" ] && [ -n "${PBS_JOBID:-}" ] || { echo "not executing under PBS" >&2; exit 255; }
  grep -qx -e "$1" "$PBS_NODEFILE" || { echo "host \"$1\" is not a node in job <$PBS_JOBID>" >&2; exit 255; }
  mapfile -d "" -t variables <"$server/jobs/${PBS_JOBID%.server}/environment"
  cd "$HOME"
  exec /run/enter "$1" env -i "${variables[@]}" PBS_NODENUM=1 PBS_TASKNUM=2 TMPDIR="/run/$1/tmp" "${@:2}"'
case $flavour in
  pbs) command_of_server pbs_tmrsh <<<"$start_on" ;;
  torque) command_of_server pbsdsh <<<"[ \"\$1\" = -h ] && shift$start_on" ;;
esac
echo "PBS_EXEC=$server" >"$server/pbs.conf"

attribute() { cat "$server/jobs/$1/$2" 2>/dev/null || echo "${3:-}"; }

# The variables of job $1 on all nodes, a NUL after each.
variables_of() {
  local number=$1 walltime
  cat "$server/jobs/$number/variables"
  walltime=$(attribute "$number" Resource_List.walltime)
  printf '%s\0' HOME="$folder/home" LOGNAME=user USER=user SHELL=/bin/bash LANG=C PATH=/usr/bin:/bin \
    PBS_ENVIRONMENT=PBS_BATCH PBS_JOBID="$number.server" PBS_JOBNAME="$(attribute "$number" Job_Name)" \
    PBS_QUEUE="$(attribute "$number" queue)" PBS_O_QUEUE="$(attribute "$number" queue)" \
    PBS_O_WORKDIR="$(attribute "$number" workdir)" PBS_O_HOME="$folder/home" PBS_O_HOST=login \
    PBS_O_LOGNAME=user PBS_O_PATH=/usr/bin:/bin PBS_O_SHELL=/bin/bash PBS_O_LANG=C \
    PBS_JOBCOOKIE=1234 PBS_MOMPORT=15003
  case $flavour in
    # PBS says how many threads a job of one process had best have.
    pbs) printf '%s\0' PBS_CONF_FILE="$server/pbs.conf" PBS_O_SYSTEM=Linux PBS_JOBDIR="$folder/home" NCPUS=2 \
      OMP_NUM_THREADS=2 ;;
    # Its commands are on everybody's path.
    torque) printf '%s\0' PATH="$server/bin:/usr/bin:/bin" PBS_NUM_NODES=2 PBS_NUM_PPN=2 PBS_NP=4 PBS_VNODENUM=0 \
      PBS_VERSION=TORQUE-6.1.3 PBS_SERVER=server PBS_WALLTIME=$((10#${walltime##*:})) ;;
  esac
}

# run_job NUMBER: runs it on both nodes, two ranks each, and sets code.
run_job() {
  local job=$server/jobs/$1 variables
  variables_of "$1" >"$job/environment"
  mapfile -d '' -t variables <"$job/environment"
  printf '%s\n' node1 node1 node2 node2 >"$job/nodes"
  code=0
  (cd "$folder/home" && exec env -i "${variables[@]}" PBS_NODENUM=0 PBS_TASKNUM=1 PBS_NODEFILE="$job/nodes" \
    TMPDIR=/run/node1/tmp /bin/bash "$job/script") </dev/null >"$job/log" 2>&1 || code=$?
  echo "job $1 ended with exit code $code"
}
