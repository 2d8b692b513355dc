#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Called by an mpirun without support for PBS, in the place of ssh: remote_start.sh HOST COMMAND...
# Starts the command on another node of the job through PBS itself, which knows neither a shell nor the
# environment of this job. PBS wants the name that the node file has, mpirun may have cut off the domain.
host=$1
shift
name=$(awk -v host="$host" 'index($1 ".", host ".") == 1 { print $1; exit }' "$PBS_NODEFILE")
# shellcheck disable=SC2086  # its options are words
exec ${remote_start:?} "${name:-$host}" /usr/bin/env "PATH=$PATH" "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" \
  /bin/sh -c "$*"
