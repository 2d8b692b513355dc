#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the kernels for GPUs with nvcc for Hopper and holds what they take against budgets.txt. Needs no GPU, and
# links nothing. Then the same with a kernel that must be found.
#   check.sh FOLDER     works in FOLDER; headers of a Kokkos with CUDA are in FOLDER/kokkos (see kokkos_headers.sh)
# Exit code 77 where nvcc or the headers are missing. FOLDER/outcome says in a line how it went.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
end() {
  echo "$2" | tee "$work/outcome"
  exit "$1"
}
rm -f "$work/outcome"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || end 77 "skipped: there is no nvcc here"
[ -f "$work/kokkos/KokkosCore_config.h" ] ||
  end 77 "skipped: no headers of a Kokkos with CUDA (tests/device_kernels/kokkos_headers.sh FOLDER gets them)"

CCACHE_BASEDIR=$(cd "$here/../.." && pwd)
export CCACHE_BASEDIR CCACHE_NOHASHDIR=1
launcher=$here/keep_report.sh
! command -v ccache >/dev/null || launcher="$launcher;ccache"
build=$work/build
SECONDS=0
{
  cmake -S "$here/project" -B "$build" -G Ninja "-DKOKKOS_HEADERS=$work/kokkos" -DCMAKE_BUILD_TYPE=None \
    "-DCMAKE_CUDA_COMPILER=$nvcc" -DCMAKE_CUDA_ARCHITECTURES=90-real "-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher" &&
    ninja -C "$build" -j2 kernels_device_check planted
} >"$work/log" 2>&1 || {
  tail -n 60 "$work/log"
  end 1 "failed: the kernels do not compile for a GPU"
}

# report TARGET: a line for each kernel of the target.
report() {
  local said name
  find "$build/CMakeFiles/$1.dir" -name '*.said' | sort | while read -r said; do
    name=$(basename "$said" .cpp.o.said)
    c++filt <"$said" | awk -v "file=$name" -f "$here/report.awk"
  done
}
judge() {
  awk -f "$here/judge.awk" "$@"
}
report kernels_device_check >"$work/kernels.txt"
judge "$here/budgets.txt" "$work/kernels.txt" || end 1 "failed: kernels take more than their budgets, see above"

# finds REGEX BUDGET: the planted kernel is found with this row in the budgets.
report planted >"$work/planted.txt"
finds() {
  local found
  found=$(judge -v partly=1 <(cat "$here/budgets.txt" && echo "$2") "$work/planted.txt" || true)
  [[ $found =~ $1 ]] || end 1 "failed: the budgets do not find a planted kernel: $1"
}
finds 'planted: LargeArray has no row' '#'
finds 'planted: LargeArray takes [0-9]+ registers of 8' 'planted LargeArray 8 4096 0'
finds 'planted: LargeArray has a stack of 1024 bytes, of 0' 'planted LargeArray 255 0 0'
end 0 "$(wc -l <"$work/kernels.txt") kernels compiled for sm_90 and within their budgets, in $SECONDS s"
