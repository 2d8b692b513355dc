#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: sets up as jobscripts/local.sh does, builds the program and its tests, builds the unit tests of what
# reads bytes or owns memory once more under address and undefined-behaviour sanitizers, with the fuzz targets, those of
# the communication threads also under the thread sanitizer, and runs them with ctest.
#   tests/run.sh [ctest options]         all but those labelled soak; for example: tests/run.sh -R unit/core
#   tests/run.sh --since REV [options]   those of them that what changed since the commit REV can reach (tests/reach.cmake)
#   tests/run.sh --all [ctest options]   every test, with the benchmarks, all folders under sanitizers, also libtorch's
#                                        users, and a build of each file alone, where every header has to compile by itself
# Under sanitizers go comm, checkpoint and the readers of files, and what else changed since REV, or in the last 20
# commits. The last lines say where the time went; the very last is ctest's summary. Exit code: ctest's; 69 if this
# machine lacks something.
set -euo pipefail

# shellcheck source=../jobscripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../jobscripts/setup.sh"

all=OFF
since=
chosen=(-LE soak)
if [ "${1:-}" = --all ]; then
  all=ON
  chosen=()
  shift
elif [ "${1:-}" = --since ]; then
  since=${2:-}
  git -C "$root" rev-parse --quiet --verify "$since^{commit}" >/dev/null || stop "--since $since" "it is no commit here" \
    "what changed since then decides which tests run" "Name one, for example: tests/run.sh --since HEAD~3"
  shift 2
fi

# changed_since REV: the files that differ from it, those git does not know yet included, separated by semicolons.
changed_since() {
  { git -C "$root" diff --name-only "$1" && git -C "$root" ls-files --others --exclude-standard; } | paste -s -d ';'
}
# reach_of FILES WORD: what tests/reach.cmake says behind WORD of them.
reach_of() { cmake "-DCHANGED=$1" -P "$root/tests/reach.cmake" | sed -n "s/^$2 *//p"; }

# Only the tests call these: h5dump and h5py, clang-format, shellcheck, clang with libFuzzer and OpenMP; for two nodes
# on one machine ip and a Slurm with srun's PMIx and its own qsub; Lmod for the installed modulefiles; QEMU for old
# processors; jinja2 for exported chat templates; debootstrap for a bare system.
packages+=(hdf5-tools python3-h5py python3-numpy clang-format shellcheck clang libclang-rt-dev libomp-dev
  iproute2 slurm-wlm slurm-wlm-torque munge libpmix-dev lmod qemu-user python3-jinja2)
[ $all = OFF ] || packages+=(debootstrap)
set_up_machine

# Without commits to compare with (a tree that is no clone) nothing is known to have changed.
changed=
if [ -n "$since" ]; then
  changed=$(changed_since "$since")
elif git -C "$root" rev-parse --quiet --verify HEAD~20 >/dev/null 2>&1; then
  changed=$(changed_since HEAD~20)
fi
if [ -n "$since" ]; then
  say "what changed since $since does not reach: $(reach_of "$changed" 'left out')"
  tests=$(reach_of "$changed" tests)
  sanitized_folders=$(reach_of "$changed" touched)
  [ "$tests" = all ] || chosen+=(-R "$tests")
  [ -n "$sanitized_folders" ] || chosen[1]='soak|sanitized|fuzz'
elif [ $all = ON ]; then
  sanitized_folders=all
else
  sanitized_folders=$(reach_of "$changed" sanitized)
fi

# list_tests FOLDER FILE: what ctest would run there.
list_tests() { (cd "$1" && ctest --show-only=json-v1 "${chosen[@]}" "${@:3}") >"$2"; }

# Clang compiles these in two thirds of the time that GCC needs, and has libFuzzer. Its precompiled headers name files of
# the folder that they were made in, so objects that use them are of no use to any other; larger unity files cost no more
# time.
build_sanitized() {
  find_clang
  [ -n "$clang" ] || say "the fuzz targets are not built: there is no clang++ with libFuzzer here"
  local sanitized=("CMAKE_CXX_COMPILER=${clang:-$(command -v c++)}" "${options[@]}" CMAKE_BUILD_TYPE=Sanitize
    "FINETUNE_SANITIZED_FOLDERS=${sanitized_folders// /,}" CMAKE_DISABLE_PRECOMPILE_HEADERS=ON
    CMAKE_UNITY_BUILD_BATCH_SIZE=16)
  configure "$build/asan" "${sanitized[@]}" "FINETUNE_SANITIZE=${clang:+fuzzer-no-link,}address,undefined" \
    "FINETUNE_SANITIZE_ATEN=$all" "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1 -D_GLIBCXX_ASSERTIONS"
  compile "$build/asan" sanitized_tests
  configure "$build/tsan" "${sanitized[@]}" FINETUNE_SANITIZE=thread "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1"
  compile "$build/tsan" sanitized_tests
}

begin "the program and its tests"
# Warnings are errors here wherever this is compiled.
options=("${build_options[@]}" FINETUNE_WERROR=ON)
configure "$build" "${options[@]}" "FINETUNE_BENCH=$all"
targets=()
if [ -n "$since" ]; then
  list_tests "$build" "$build/tests.json" "$@"
  mapfile -t targets < <(python3 "$root/tests/ctest_facts.py" targets "$build" "$build/tests.json" | grep -v '^[at]san/')
  targets+=(finetune)
fi
compile "$build" "${targets[@]}"
# CTest in build/ lists the tests of build/asan and build/tsan too (tests/CMakeLists.txt).
if [ -n "$sanitized_folders" ]; then
  begin "sanitizers and fuzz targets"
  build_sanitized
fi
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
list_tests "$build" "$build/tests.json" "$@"
# Half as many again as there are cores: tests wait for ranks, signals and files.
at_once=$(($(count_cores) * 3 / 2))
(cd "$build" && ctest -j "$((at_once > 2 ? at_once : 2))" --output-on-failure --no-label-summary \
  --output-log "$build/ctest.log" "${chosen[@]}" "$@") || code=$?
say_times
[ ! -f "$device_kernels/outcome" ] || say "kernels for GPUs: $(cat "$device_kernels/outcome")"
say "seconds of tests, which ran at once in part:"
python3 "$root/tests/ctest_facts.py" times "$build/tests.json" "$build/ctest.log" || true
# With failures or skips ctest prints lists after its summary: the summary goes last.
{ grep 'tests passed,' "$build/ctest.log" || true; } | tail -n 1
exit $code
