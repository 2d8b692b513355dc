# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# The only file a site edits: what every jobscript takes from its surroundings. All of it is optional.

# Software that is not where the system has it, for example:
#   module load gcc/12 openmpi hdf5 kokkos
#   spack env activate "$root/spack/env/cuda"

# Folder of a libtorch 2.11 (it holds include and lib). Empty: fetched by pip into build/libtorch.
: "${FINETUNE_LIBTORCH:=}"

# 1: build for NVIDIA GPUs. Needs the CUDA 13 toolkit with NCCL and cuDNN.
: "${FINETUNE_WITH_CUDA:=0}"

# Ranks that local.sh starts. Empty: one a core.
: "${FINETUNE_RANKS:=}"

# How often a job that stopped in time goes back into the queue (slurm/train.sh, pbs/train.sh).
: "${FINETUNE_MAX_RESTARTS:=50}"
