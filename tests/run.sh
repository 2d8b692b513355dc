#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test: sets up as jobscripts/local.sh does, builds with warnings as errors, builds the unit
# tests once more under address and undefined-behaviour sanitizers, those of the communication threads
# also under the thread sanitizer, the fuzz targets with clang, and runs all of them with ctest.
#   tests/run.sh [ctest options]     for example: tests/run.sh -R unit/core
# The last line is ctest's summary. Exit code: ctest's; 69 if this machine lacks something.
set -euo pipefail

# shellcheck source=../jobscripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../jobscripts/setup.sh"

# Only the tests call these: h5dump and h5py, clang-format, shellcheck, clang with libFuzzer; for two nodes on one
# machine ip and a Slurm with srun's PMIx and its own qsub; Lmod for the installed modulefiles.
packages+=(hdf5-tools python3-h5py python3-numpy clang-format shellcheck clang libclang-rt-dev
  iproute2 slurm-wlm slurm-wlm-torque munge libpmix-dev lmod)
set_up_machine
options=(FINETUNE_WERROR=ON "FINETUNE_WITH_CUDA=$([ "$FINETUNE_WITH_CUDA" = 1 ] && echo ON || echo OFF)")
configure "$build" "${options[@]}"
compile "$build"
# CTest in build/ lists the tests of build/asan, build/tsan and build/fuzz too (tests/CMakeLists.txt).
configure "$build/asan" "${options[@]}" FINETUNE_SANITIZE=address,undefined \
  CMAKE_BUILD_TYPE=Sanitize "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1 -D_GLIBCXX_ASSERTIONS"
compile "$build/asan" sanitized_tests
configure "$build/tsan" "${options[@]}" FINETUNE_SANITIZE=thread \
  CMAKE_BUILD_TYPE=Sanitize "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1"
compile "$build/tsan" sanitized_tests
build_fuzz_targets

say "running the tests"
code=0
(cd "$build" && ctest -j "$(count_cores)" --output-on-failure --no-label-summary \
  --output-log "$build/ctest.log" "$@") || code=$?
# With failures or skips ctest prints lists after its summary: the summary goes last.
{ grep 'tests passed,' "$build/ctest.log" || true; } | tail -n 1
exit $code
