#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts into .gpu what tests/gpu/run.sh needs on a machine that has a GPU and a Python with libtorch, but no compiler, no
# MPI and no network: programs for any x86-64-v3 processor, the libraries that are not libtorch's, the driver's or every
# system's, and the parts of Open MPI that one rank loads. run.sh unpacks it.
#   tests/gpu/bundle.sh [FOLDER]      FOLDER: .gpu
# Needs the CUDA toolkit and NCCL to build with, as -DFINETUNE_WITH_CUDA=ON does. There it needs the libtorch that this
# was built with (the version, and CUDA of the same major number), in any Python that `python3` is; Linux with a glibc
# and libstdc++ as new as the lines at the end say; tar, gzip and bash.
# The archive travels with the tree: both are added up.
# Exit code: 0; 69 if something is missing; 73 if together they are larger than what may travel.
set -euo pipefail

export FINETUNE_WITH_CUDA=1 FINETUNE_ARCH=x86-64-v3
# shellcheck source=../../jobscripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../jobscripts/setup.sh"

most_mib=60
# What is there wherever there is a libtorch for CUDA.
foreign='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libutil|libresolv|libstdc\+\+|libgcc_s|libgomp)[.-]|^lib(torch|c10|cud|cublas|cufft|cufile|cupti|curand|cusolver|cusparse|nv|nccl)'
# Parts of Open MPI for networks and launchers that a single rank has no use for.
networks='ucx|ofi|openib|psm|usnic|oshmem|spml|sshmem|scoll|memheap|atomic|pmix_ext|pmix_flux|slurm|gridengine|monitoring'

# dependencies FILE...: "name path" of every library that these load.
dependencies() {
  local file
  for file in "$@"; do ldd "$file"; done | awk '$2 == "=>" { print $1, $3 }' | sort -u
}

copy_programs() {
  local program
  mkdir -p "$bundle/bin"
  cp "$build_gpu/finetune" "$bundle/bin"
  for program in golden_model gpu_bench test_unit_comm test_unit_model test_unit_shard; do
    cp "$build_gpu/tests/$program" "$bundle/bin"
  done
  cp "$build_gpu/tests/test_gpu_test" "$bundle/bin/gpu_test"
  [ ! -f "$build_gpu/tests/count_launches.so" ] || cp "$build_gpu/tests/count_launches.so" "$bundle/bin"
}

copy_components() {
  local component folder
  folder=$(ompi_info --path pkglibdir --parsable | sed 's/.*://')
  [ -d "$folder" ] || stop "Open MPI" "its components were not found" "ompi_info says $folder" "Install libopenmpi3."
  mkdir -p "$bundle/mpi"
  for component in "$folder"/mca_*.so; do
    [[ $(basename "$component") =~ $networks ]] || cp -L "$component" "$bundle/mpi"
  done
}

copy_libraries() {
  local name path absent=""
  mkdir -p "$bundle/lib"
  while read -r name path; do
    if [[ $name =~ $foreign ]]; then continue; fi
    if [ "$path" = not ]; then
      absent+=" $name"
    else
      cp -L "$path" "$bundle/lib/$name"
    fi
  done < <(dependencies "$bundle"/bin/* "$bundle"/mpi/*)
  [ -z "$absent" ] || stop "$bundle" "libraries are missing:$absent" "the programs would not start" \
    "Install what they belong to."
}

# Symbols go, and the folders of this machine: libraries are found next to the programs, libtorch by LD_LIBRARY_PATH.
strip_all() {
  strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/* "$bundle"/mpi/*
  local file
  for file in "$bundle"/bin/* "$bundle"/lib/* "$bundle"/mpi/*; do
    # shellcheck disable=SC2016  # for the loader
    case $file in
      */bin/*) printf 'file(RPATH_SET FILE "%s" NEW_RPATH [=[$ORIGIN/../lib]=])\n' "$file" ;;
      *) printf 'file(RPATH_REMOVE FILE "%s")\n' "$file" ;;
    esac
  done >"$bundle.cmake"
  cmake -P "$bundle.cmake" >/dev/null
  rm "$bundle.cmake"
}

# newest PREFIX: of the versioned symbols that the files ask the system for.
newest() {
  for file in "$bundle"/bin/* "$bundle"/lib/* "$bundle"/mpi/*; do readelf -V "$file"; done |
    grep -oE "Name: $1_[0-9.]+" | sed "s/Name: $1_//" | sort -V | tail -n 1
}

target=${1:-$root/.gpu}
mkdir -p "$target"
target=$(cd "$target" && pwd -P)
bundle=$target/bundle
build_gpu=$build/gpu
find_libtorch
# Old tags: a RUNPATH would count for the program alone and not for the libraries it loads.
configure "$build_gpu" "${build_options[@]}" FINETUNE_BENCH=OFF CMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
targets=(finetune golden_model gpu_bench test_gpu_test test_unit_comm test_unit_model test_unit_shard)
ninja -C "$build_gpu" -t targets all | grep -c '^count_launches:' >/dev/null && targets+=(count_launches)
compile "$build_gpu" "${targets[@]}"

rm -rf "$bundle" "$target/bundle.tar.gz"
copy_programs
copy_components
copy_libraries
strip_all
glibc=$(newest GLIBC)
libstdcxx=$(newest GLIBCXX)
# The same files give the same archive.
tar -c --sort=name --owner=0 --group=0 --mtime=@0 -C "$target" bundle | gzip -9n >"$target/bundle.tar.gz"
rm -rf "$bundle"
bytes=$(stat -c %s "$target/bundle.tar.gz")
tree_bytes=$(git -C "$root" ls-files -z | (cd "$root" && du -c --apparent-size -B1 --files0-from=-) | awk 'END { print $1 }')
mib() { echo $((($1 + 1048575) >> 20)); }
say "$target/bundle.tar.gz: $(mib "$bytes") MiB, with $(mib "$tree_bytes") MiB of the tree $(mib $((bytes + tree_bytes))) of at most $most_mib"
say "it needs glibc $glibc (ldd --version), libstdc++ with GLIBCXX_$libstdcxx, and libtorch ${wheels[0]#torch==} for CUDA 13"
if [ $((bytes + tree_bytes)) -gt $((most_mib << 20)) ]; then
  printf 'error: %s: with the tree it is too large (%s MiB may travel). %s\n' "$target/bundle.tar.gz" "$most_mib" \
    "Leave a program or a library out." >&2
  exit 73
fi
