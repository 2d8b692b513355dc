#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh N PROGRAM [ARGS...]: starts PROGRAM on N ranks of this machine, for the tests.
set -euo pipefail
ranks=$1
shift
command -v mpirun >/dev/null || {
  echo "skipped: no mpirun here" >&2
  exit 77
}
options=(-n "$ranks" --oversubscribe --bind-to none)
# Open MPI refuses to run as root unless told twice; in a container root is all there is.
[ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)
# Tests run more ranks than there are cores. Where they wait for each other they sleep (src/comm/detail/waiting.hpp); the
# rounds of messages in which Open MPI makes a communicator are short, and far quicker if it yields.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec mpirun "${options[@]}" "$@"
