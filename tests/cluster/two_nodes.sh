#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs an MPI program on two "nodes" of this machine: namespaces with a host name, a network and shared
# memory of their own, joined by one cable. MPI sees two hosts.
#
#   two_nodes.sh [--ranks-per-node N] [--rate RATE] [--launcher NAME] [--traffic FILE] [--] PROGRAM [ARGS...]
#
#   --ranks-per-node N   2 if not said; 3,1: so many on the first and on the second, with mpirun
#   --rate RATE          shapes the cable, for example 1gbit
#   --launcher mpirun    if not said
#   --launcher slurm     srun of a Slurm cluster of these nodes that lives as long as the program
#   --launcher sbatch    the program runs once, on node1, with such a cluster around it, where sbatch works
#   --launcher preempting  the same with partitions preempted, graceful (30 s) and urgent, which takes their nodes
#   --launcher none      the program runs once, on node1; /run/enter NODE COMMAND... runs a command on a node
#   --traffic FILE       a line "node1 BYTES" for each node: what it sent over the cable
#
# All of it lives in namespaces that end with this process, however it ends: nothing of it is seen outside,
# and there is nothing to clean up. Root is not needed where users may make namespaces (Slurm needs it).
# Exit code: the program's; 77 if this machine lacks something, which is named.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# Covered by an empty file system in the namespace, so all that is written there goes with it.
run=/run
nodes=(node1 node2)
ranks_per_node=2
rate=
launcher=mpirun
traffic=

skip() {
  printf 'skipped: %s\n' "$*" >&2
  exit 77
}

usage() {
  sed -n '3,/^set /{/^# \{0,1\}/s///p}' "${BASH_SOURCE[0]}" >&2
  exit 64
}

read_arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      --ranks-per-node) ranks_per_node=${2:?} ;;
      --rate) rate=${2:?} ;;
      --launcher) launcher=${2:?} ;;
      --traffic) traffic=$(realpath "${2:?}") ;;
      --) shift && break ;;
      -*) usage ;;
      *) break ;;
    esac
    shift 2
  done
  [ $# -gt 0 ] || usage
  program=("$@")
}

require_tools() {
  local tool tools=(unshare nsenter setpriv ip mpirun)
  [ -z "$rate" ] || tools+=(tc)
  case $launcher in
    mpirun | none) ;;
    slurm | sbatch | preempting)
      tools+=(munged slurmctld slurmd srun)
      [ "$(id -u)" -eq 0 ] || skip "Slurm's daemons need root"
      ;;
    *) usage ;;
  esac
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || skip "there is no $tool here"
  done
}

# enter NODE COMMAND...: runs a command on a node.
enter() {
  local node=$1 place=$run/$1
  shift
  nsenter --net="$run/netns/$node" --uts="$place/uts" --ipc="$place/ipc" -- "$@"
}

# shape DEVICE: the command that does it. A burst holds the largest packet that the network stack hands down in
# one piece.
shape() {
  [ -z "$rate" ] || echo "tc qdisc add dev $1 root tbf rate '$rate' burst 256kb latency 50ms"
}

make_nodes() {
  local i node place
  mount -t tmpfs tmpfs $run
  mount -t tmpfs tmpfs /dev/shm
  printf '127.0.0.1 localhost\n' >$run/hosts
  for i in 0 1; do
    node=${nodes[i]}
    place=$run/$node
    mkdir -p "$place/tmp" $run/netns
    touch "$run/netns/$node" "$place"/{uts,ipc}
    unshare --net="$run/netns/$node" --uts="$place/uts" --ipc="$place/ipc" true
    printf '10.77.0.%d %s\n' $((i + 1)) "$node" >>$run/hosts
  done
  mount --bind $run/hosts /etc/hosts
  enter node1 ip link add cable1 type veth peer name cable2
  enter node1 ip link set cable2 netns node2  # looked for in /run/netns
  for i in 0 1; do
    enter "${nodes[i]}" "$BASH" -euc "
      hostname ${nodes[i]}
      ip link set lo up
      ip link set cable$((i + 1)) name eth0
      ip address add 10.77.0.$((i + 1))/24 dev eth0
      ip link set eth0 up
      # Every kernel has it. bbr, the choice of some, takes a busy core for a slow cable.
      echo reno >/proc/sys/net/ipv4/tcp_congestion_control
      $(shape eth0)"
  done
}

# Programs that run a command on a node: its words as they are; or for mpirun, in the place of ssh.
write_programs() {
  cat >$run/enter <<EOF
#!$BASH
run=$run
$(declare -f enter)
export TMPDIR=$run/\$1/tmp
enter "\$@"
EOF
  cat >$run/remote_shell <<EOF
#!$BASH
exec $run/enter "\$1" sh -c "\${*:2}"
EOF
  chmod +x $run/enter $run/remote_shell
}

launch_with_mpirun() {
  local first=${ranks_per_node%,*} second=${ranks_per_node#*,}
  local hosts=${nodes[0]}:$first,${nodes[1]}:$second
  TMPDIR=$run/node1/tmp enter node1 "$here/../support/mpirun.sh" $((first + second)) \
    --host "$hosts" --mca plm rsh --mca plm_rsh_agent $run/remote_shell "${program[@]}"
}

write_slurm_conf() {
  cat >$run/slurm.conf <<EOF
ClusterName=two_nodes
SlurmctldHost=${nodes[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# How long a job that goes back into the queue waits there.
AuthInfo=cred_expire=8
SchedulerParameters=sched_interval=1
JobCompType=jobcomp/filetxt
JobCompLoc=$run/completed
StateSaveLocation=$run/state
SlurmdSpoolDir=$run/%n/spool
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/%n/slurmd.pid
TmpFS=$run/%n/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# The ranks may be more than the cores.
SlurmdParameters=config_overrides
NodeName=${nodes[0]},${nodes[1]} CPUs=$ranks_per_node
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:2
EOF
  [ "$launcher" != preempting ] || cat >>$run/slurm.conf <<EOF
# Who comes by urgent takes the nodes from the jobs of the others, which go back into the queue. Only where it is
# asked for: in a Slurm that preempts, jobs of one partition do not share cores.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=preempted Nodes=ALL State=UP PriorityTier=1 GraceTime=0
PartitionName=graceful Nodes=ALL State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
EOF
  mkdir -p $run/state $run/node1/spool $run/node2/spool
}

start_slurm() {
  local node
  (umask 077 && head -c 64 /dev/urandom >$run/munge.key && mkdir -p $run/log)
  mkdir -p $run/munge
  munged --key-file=$run/munge.key --log-file=$run/log/munged --seed-file=$run/munge.seed --num-threads=2 2>$run/log/munged.start
  write_slurm_conf
  export SLURM_CONF=$run/slurm.conf
  enter node1 slurmctld -D &>$run/log/slurmctld &
  for node in "${nodes[@]}"; do
    enter "$node" slurmd -D -N "$node" &>"$run/log/$node" &
  done
  SECONDS=0
  until [ "$(enter node1 sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ]; do
    if [ $SECONDS -gt 300 ]; then
      echo "Slurm's nodes do not come up" >&2
      tail -n 20 $run/log/* >&2
      return 1
    fi
    sleep 0.1
  done
}

launch_with_none() {
  $run/enter node1 "${program[@]}"
}

launch_with_sbatch() {
  start_slurm || return
  $run/enter node1 "${program[@]}"
}

launch_with_preempting() {
  launch_with_sbatch
}

launch_with_slurm() {
  start_slurm || return
  # As jobscripts/env/site.sh does, and why.
  export SLURM_PMIX_FENCE=ring
  enter node1 srun --mpi=pmix --nodes=2 --ntasks-per-node="$ranks_per_node" --kill-on-bad-exit=1 -- "${program[@]}"
}

write_traffic() {
  local node
  for node in "${nodes[@]}"; do
    # shellcheck disable=SC2016  # /proc/net/dev: name, eight numbers of what came in, bytes that went out, ...
    echo "$node $(enter "$node" awk '$1 == "eth0:" { print $10 }' /proc/net/dev)"
  done
}

# In the namespace, as its first process: all others end with it.
run_inside() {
  local code=0
  make_nodes
  write_programs
  "launch_with_$launcher" || code=$?
  [ -z "$traffic" ] || write_traffic >"$traffic"
  exit $code
}

# unshare ignores signals, so this process gets them: when it ends, unshare is killed, and with it the first
# process in the namespaces and so all others.
in_namespaces() {
  local command=(unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc --propagation private)
  command=(setpriv --pdeathsig KILL "${command[@]}")
  # First, because a change of rights forgets who is to be killed.
  [ "$(id -u)" -eq 0 ] || command=(unshare --user --map-root-user "${command[@]}")
  "${command[@]}" "$@" &
  wait $!
}

read_arguments "$@"
if [ -n "${FINETUNE_TWO_NODES_INSIDE:-}" ]; then
  unset FINETUNE_TWO_NODES_INSIDE
  run_inside
fi
require_tools
probe='mount -t tmpfs tmpfs /dev/shm && ip link add cable1 type veth peer name cable2'
in_namespaces "$BASH" -c "$probe" 2>/dev/null ||
  skip "namespaces with networks cannot be made here (they need root, and may be forbidden in a container)"
[ -z "$rate" ] || in_namespaces "$BASH" -c "$probe && $(shape cable1)" 2>/dev/null ||
  skip "tc cannot shape a cable to $rate here"
trap 'exit 143' INT TERM
FINETUNE_TWO_NODES_INSIDE=1 in_namespaces "$BASH" "${BASH_SOURCE[0]}" "$@"
