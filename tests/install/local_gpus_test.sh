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
[ "$1" = -L ] || exit 1
for i in 0 1 2 3; do echo "GPU $i: NVIDIA H100 80GB HBM3 (UUID: GPU-$i)"; done
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
finish
