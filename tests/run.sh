#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: sets up as jobscripts/local.sh does, builds the program and its tests, builds the unit tests of what
# reads bytes or owns memory once more under address and undefined-behaviour sanitizers, those of the communication
# threads also under the thread sanitizer, the fuzz targets with clang, and runs them with ctest.
#   tests/run.sh [ctest options]         all but those labelled soak; for example: tests/run.sh -R unit/core
#   tests/run.sh --all [ctest options]   every test, with the benchmarks, libtorch's users under sanitizers, and a
#                                        build of each file alone, where every header has to compile by itself
# The last lines say where the time went; the very last is ctest's summary. Exit code: ctest's; 69 if this machine
# lacks something.
set -euo pipefail

# shellcheck source=../jobscripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../jobscripts/setup.sh"

all=OFF
chosen=(-LE soak)
if [ "${1:-}" = --all ]; then
  all=ON
  chosen=()
  shift
fi

# Only the tests call these: h5dump and h5py, clang-format, shellcheck, clang with libFuzzer and OpenMP; for two nodes
# on one machine ip and a Slurm with srun's PMIx and its own qsub; Lmod for the installed modulefiles; QEMU for old
# processors; jinja2 for exported chat templates; debootstrap for a bare system.
packages+=(hdf5-tools python3-h5py python3-numpy clang-format shellcheck clang libclang-rt-dev libomp-dev
  iproute2 slurm-wlm slurm-wlm-torque munge libpmix-dev lmod qemu-user python3-jinja2)
[ $all = OFF ] || packages+=(debootstrap)
set_up_machine
begin "the program and its tests"
# Warnings are errors here wherever this is compiled.
options=("${build_options[@]}" FINETUNE_WERROR=ON)
configure "$build" "${options[@]}" "FINETUNE_BENCH=$all"
compile "$build"
# CTest in build/ lists the tests of build/asan, build/tsan and build/fuzz too (tests/CMakeLists.txt).
begin "sanitizers"
# Clang compiles these in two thirds of the time that GCC needs. Its precompiled headers name files of the folder that
# they were made in, so objects that use them are of no use to any other; larger unity files cost no more time.
find_clang
sanitized=("CMAKE_CXX_COMPILER=${clang:-$(command -v c++)}" "${options[@]}" CMAKE_BUILD_TYPE=Sanitize
  CMAKE_DISABLE_PRECOMPILE_HEADERS=ON CMAKE_UNITY_BUILD_BATCH_SIZE=16)
configure "$build/asan" "${sanitized[@]}" FINETUNE_SANITIZE=address,undefined "FINETUNE_SANITIZE_ATEN=$all" \
  "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1 -D_GLIBCXX_ASSERTIONS"
compile "$build/asan" sanitized_tests
configure "$build/tsan" "${sanitized[@]}" FINETUNE_SANITIZE=thread "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1"
compile "$build/tsan" sanitized_tests
begin "fuzz targets"
build_fuzz_targets
if [ $all = ON ]; then
  begin "each file alone"
  configure "$build/alone" "${options[@]}" CMAKE_UNITY_BUILD=OFF CMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    FINETUNE_CHECK_HEADERS=ON CMAKE_BUILD_TYPE=Alone CMAKE_CXX_FLAGS_ALONE=-O0
  compile "$build/alone" finetune style_headers
fi

# What compiles the kernels for GPUs without one (tests/device_kernels); without it that test is skipped.
device_kernels=$build/device_kernels
if { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null && [ ! -d "$device_kernels/kokkos" ]; then
  begin "headers of Kokkos"
  "$root/tests/device_kernels/kokkos_headers.sh" "$device_kernels/kokkos" || say "so kernels are not compiled for GPUs"
fi
rm -f "$device_kernels/outcome"

say "running the tests"
begin "tests"
code=0
# Half as many again as there are cores: tests wait for ranks, signals and files.
at_once=$(($(count_cores) * 3 / 2))
(cd "$build" && ctest -j "$((at_once > 2 ? at_once : 2))" --output-on-failure --no-label-summary \
  --output-log "$build/ctest.log" "${chosen[@]}" "$@") || code=$?
say_times
[ ! -f "$device_kernels/outcome" ] || say "kernels for GPUs: $(cat "$device_kernels/outcome")"
say "the slowest tests, in seconds:"
{ sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: \([^ ]*\) .* \([0-9.]*\) sec.*/\2 \1/p' "$build/ctest.log" || true; } |
  sort -rn | sed -n '1,12s/^/  /p'
# With failures or skips ctest prints lists after its summary: the summary goes last.
{ grep 'tests passed,' "$build/ctest.log" || true; } | tail -n 1
exit $code
