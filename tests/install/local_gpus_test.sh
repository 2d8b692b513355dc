#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many ranks jobscripts/local.sh starts on a machine with GPUs, and with how many cores each.
#   local_gpus_test.sh WORK_FOLDER
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)

rm -rf "$1"
mkdir -p "$1/bin"
cat >"$1/bin/nvidia-smi" <<'END'
#!/bin/sh
for i in 0 1 2 3; do
  case $1 in
    -L) echo "GPU $i: NVIDIA H100 80GB HBM3 (UUID: GPU-$i)" ;;
    --query-gpu=index,uuid,pci.bus_id) echo "$i, GPU-$i, 00000000:C$i:00.0" ;;
    *) exit 1 ;;
  esac
done
END
chmod +x "$1/bin/nvidia-smi"
export PATH=$1/bin:$PATH

# asked CUDA_BUILD VISIBLE FUNCTION...: what a function of setup.sh prints; VISIBLE "-": nothing is said.
asked() {
  (
    unset CUDA_VISIBLE_DEVICES
    [ "$2" = - ] || export CUDA_VISIBLE_DEVICES=$2
    export FINETUNE_WITH_CUDA=$1
    # shellcheck source=../../jobscripts/setup.sh
    . "$top/jobscripts/setup.sh"
    "${@:3}"
  )
}

expect "all GPUs of the machine" 4 "$(asked 1 - count_gpus)"
expect "those that are visible" 2 "$(asked 1 1,3 count_gpus)"
expect "one by its name" 1 "$(asked 1 GPU-2 count_gpus)"
expect "none, if they are hidden" 0 "$(asked 1 "" count_gpus)"
expect "none, if they are hidden by a number" 0 "$(asked 1 -1 count_gpus)"
expect "none, if Slurm gave none" 0 "$(asked 1 NoDevFiles count_gpus)"
expect "those before one that is none" 1 "$(asked 1 0,-1,1 count_gpus)"
expect "none in a build without CUDA" 0 "$(asked 0 - count_gpus)"
expect "each rank with a GPU has its share of the cores" \
  "--map-by ppr:4:node:PE=16 --bind-to core" "$(asked 1 - binding_of 4 64 4)"
expect "a single one has them all" \
  "--map-by ppr:1:node:PE=64 --bind-to core" "$(asked 1 - binding_of 1 64 4)"
expect "never less than a core" \
  "--map-by ppr:4:node:PE=1 --bind-to core" "$(asked 1 - binding_of 4 2 4)"
expect "without GPUs a rank is a core" "--bind-to core" "$(asked 0 - binding_of 2 2 0)"

# Two sockets of four cores with two threads each: processors 0-3 and 8-11, 4-7 and 12-15. GPUs 0 and 1 are near the
# second one.
system=$1/sys
for i in 0 1 2 3; do
  mkdir -p "$system/bus/pci/devices/0000:c$i:00.0"
  if [ $i -lt 2 ]; then echo 4-7,12-15; else echo 0-3,8-11; fi >"$system/bus/pci/devices/0000:c$i:00.0/local_cpulist"
done
for i in $(seq 0 15); do
  mkdir -p "$system/devices/system/cpu/cpu$i/topology"
  echo "$((i % 8)),$((i % 8 + 8))" >"$system/devices/system/cpu/cpu$i/topology/thread_siblings_list"
done
near() { asked 1 "$1" cores_near_gpus "$2" "$system" "$3" | paste -s -d ' '; }
expect "ranks share the cores near their GPUs, by whole ones" \
  "4,12,5,13 6,14,7,15 0,8,1,9 2,10,3,11" "$(near - 4 0-15)"
expect "a single rank has all that are near" "4,12,5,13,6,14,7,15" "$(near - 1 0-15)"
expect "of the GPUs that are visible, in their order" "0,8,1,9,2,10,3,11 4,12,5,13,6,14,7,15" "$(near 3,0 2 0-15)"
expect "or by their names" "4,12,5,13,6,14,7,15 0,8,1,9,2,10,3,11" "$(near GPU-1,GPU-2 2 0-15)"
expect "only those that it may use" "4,5 6" "$(near 0,1 2 0-6)"
expect "nothing for parts of GPUs" "" "$(near MIG-5 1 0-15)"
expect "nothing if no near core may be used" "" "$(near - 4 0-3)"
expect "nothing where the system says nothing" "" "$(asked 1 - cores_near_gpus 4 "$1/nowhere" 0-15)"

# What a rank then does with its list, by mpirun.
read -r first <<<"$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
first=${first%%[-,]*}
root_too=()
[ "$(id -u)" -ne 0 ] || root_too=(--allow-run-as-root)
# shellcheck disable=SC2031,SC2154,SC2317
say_take_cores() { echo "$take_cores"; }
taken=$(mpirun -n 1 --bind-to none --quiet "${root_too[@]}" bash -c "$(asked 1 - say_take_cores)" finetune "$first" \
  sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
expect "a rank runs on the cores of its list" "$first" "$taken"
finish
