# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: where the programs and their libraries come from, and what the machine is.

# Sets bin, and lib and mpi of a bundle.
find_programs() {
  local archive=$root/.gpu/bundle.tar.gz
  lib=
  mpi=
  if [ "$mode" = full ] && [ -z "${FINETUNE_BUILD:-}" ] && [ -f "$archive" ]; then
    tar -xzf "$archive" -C "$work"
    bin=$work/bundle/bin
    lib=$work/bundle/lib
    mpi=$work/bundle/mpi
    return
  fi
  local build=${FINETUNE_BUILD:-$root/build} simulated=
  [ "$mode" = full ] || simulated=simulated
  bin=$work/bin
  mkdir -p "$bin"
  ln -s "$build/${simulated:+tests/}finetune${simulated:+_simulated}" "$bin/finetune"
  ln -s "$build/tests/test_gpu_${simulated:-test}" "$bin/gpu_test"
  ln -s "$build"/tests/{golden_model,gpu_bench,test_unit_comm,test_unit_shard,test_unit_model} "$bin"
  local program
  for program in "$bin"/*; do
    [ -x "$program" ] && continue
    printf 'error: %s: it is not there (this call needs it). %s\n' "$(readlink "$program")" \
      "Make a bundle with tests/gpu/bundle.sh, or name a build folder in FINETUNE_BUILD." >&2
    exit 69
  done
}

# libtorch and what it is linked with, as python3 has them: without loading any of it.
folders_of_torch() {
  python3 - <<'END'
import glob, importlib.util, os
found = importlib.util.find_spec("torch")
if found is not None and found.origin:
    torch = os.path.dirname(found.origin)
    print(":".join([torch + "/lib"] + sorted(glob.glob(os.path.dirname(torch) + "/nvidia/*/lib"))))
END
}

set_environment() {
  local torch driver=/usr/local/nvidia
  # Where containers have the driver's programs and libraries, and where toolkits have theirs.
  PATH=$PATH:$driver/bin:/usr/local/cuda/bin
  if [ -n "$lib" ]; then
    torch=$(folders_of_torch)
    # The programs find the bundle's libraries by themselves; other programs are not to find them. The driver's may come
    # by this variable too.
    export LD_LIBRARY_PATH=$torch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$driver/lib64
    export OMPI_MCA_mca_base_component_path=$mpi
    # Where Open MPI looks for its texts, which are not needed but missed with many words.
    export OPAL_PREFIX=${lib%/lib}
  fi
  # One rank without mpirun and without a daemon of its own.
  export OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self
  # A container may set none.
  export HOME=${HOME:-$work} FINETUNE_TERMINAL_COLUMNS=0
  export FINETUNE_TEST_SOURCE_FOLDER=$root FINETUNE_TEST_BUILD_FOLDER=$work/build
  mkdir -p "$work/build/tests"
  finetune=$bin/finetune
  device_name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sed -n 1p)
  [ "$mode" = full ] || device_name=simulated
}

has_gpu() {
  nvidia-smi -L 2>/dev/null | grep -c '^GPU' >/dev/null
}

# A command's output under its name; that it is missing is no failure.
show() {
  printf '\n== %s\n' "$*"
  "$@" 2>&1 || printf 'ended with %s\n' $?
}

describe_machine() {
  show date -u
  show uname -a
  show grep PRETTY_NAME /etc/os-release
  show nvidia-smi
  show nvidia-smi -q -d CLOCK,ECC,POWER
  show lscpu
  show free -g
  show df -h /tmp /dev/shm
  show ldd --version
  printf '\nLD_LIBRARY_PATH=%s\n' "${LD_LIBRARY_PATH:-}"
  printf '\n== %s --version\n' "$finetune"
  ldd "$finetune" | grep 'not found' && fail "libraries of finetune are not found: $(ldd "$finetune" |
    awk '/not found/ { printf "%s ", $1 }')"
  bounded "$finetune" --version
}

# What a bundle shows without a GPU: its programs start, and train, save and test on the CPU.
call_without_gpu() {
  check no_gpu 20 gpu_test_is_skipped
  check bench_without_gpu 20 bench_is_skipped
  prepare_decks
  check trains_on_cpu 60 trains_on_the_cpu
  check shard_on_cpu 60 bounded "$bin/test_unit_shard"
  check model_on_cpu 60 bounded "$bin/test_unit_model"
  check comm_on_cpu 60 bounded "$bin/test_unit_comm" --gtest_filter='*roup*'
}

gpu_test_is_skipped() {
  local log=$work/gpu_test.gtest
  bounded "$bin/gpu_test" >"$log" 2>&1
  grep -c "skipped: there is no GPU here" "$log" || fail "gpu_test does not say that there is no GPU"
}

bench_is_skipped() {
  local code=0
  bounded "$bin/gpu_bench" || code=$?
  [ $code -eq 77 ] || fail "gpu_bench ended with $code, not 77"
}

trains_on_the_cpu() {
  train on_cpu cpu 0 train.max_steps=2
  bounded "$finetune" verify "$runs/on_cpu"
  exported on_cpu
}
