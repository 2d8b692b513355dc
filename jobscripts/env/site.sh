# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# The only file a site edits: what every jobscript takes from its surroundings. All of it is optional, and
# what the environment says already counts instead. $root: the folder that jobscripts/ lies in.
# Where you may not write to this one, lines of it go into ~/.config/finetune/site.sh or a file that the variable
# FINETUNE_SITE names: both are read after this one, and what they say counts.

# Software that is not where the system has it, for example:
#   . /etc/profile.d/modules.sh      where a job does not know `module`
#   module load gcc/12 openmpi hdf5 kokkos
#   spack env activate "$root/spack/env/cuda"

# The program. Empty: build/finetune of the sources, bin/finetune of an installation.
: "${FINETUNE_BINARY:=}"

# How often a job that stopped in time goes back into the queue.
: "${FINETUNE_MAX_RESTARTS:=50}"

# A scheduler that does not answer is asked again after so many seconds.
: "${FINETUNE_ASK_AGAIN:=2 5 10 20}"

# Slurm: how srun starts ranks (srun --mpi=list), and whatever else the site wants it to be told. Account and
# partition are sbatch's: -A and -p, or SBATCH_ACCOUNT and SBATCH_PARTITION in your environment.
: "${FINETUNE_SRUN_OPTIONS:=--mpi=pmix}"
# How Slurm's PMIx plugin lets ranks wait for each other while MPI starts. In Slurm 22.05 its "tree" may let one
# go before all are there, and ranks then die in MPI_Init, seldom.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}

# PBS and TORQUE: more options of mpirun, for example "--mca pml ucx"; or the whole launcher with its
# options, where it is not Open MPI's: "mpiexec -n 16 --ppn 4 --depth 8 --cpu-bind depth".
: "${FINETUNE_MPIRUN_OPTIONS:=}"
: "${FINETUNE_MPIRUN:=}"
# More options of the qsub that submits the next job. It gets this one's resources, queue, account, project,
# name and mail by itself.
: "${FINETUNE_QSUB_OPTIONS:=}"
# Cores of a rank. Empty: under PBS ncpus / mpiprocs of the first chunk, under TORQUE 1.
: "${FINETUNE_CORES_PER_RANK:=}"
# What starts a command on another node of the job, as `pbs_tmrsh HOST COMMAND...` does. Empty: pbs_tmrsh
# (PBS) or pbsdsh -h (TORQUE). Used only if mpirun was built without support for PBS (its `tm`).
: "${FINETUNE_REMOTE_START:=}"

# local.sh: how many ranks it starts. Empty: one per core.
: "${FINETUNE_RANKS:=}"
# local.sh: folder of a libtorch 2.11 (it holds include and lib). Empty: fetched by pip into build/libtorch.
: "${FINETUNE_LIBTORCH:=}"
# local.sh: 1 builds for NVIDIA GPUs. Needs the CUDA 13 toolkit with NCCL and cuDNN.
: "${FINETUNE_WITH_CUDA:=0}"
# local.sh: the processor that it builds for, as the compiler's -march has it. native: this machine's.
: "${FINETUNE_ARCH:=native}"
