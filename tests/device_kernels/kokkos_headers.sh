#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts headers of a Kokkos with CUDA into a folder, to compile kernels against: nothing can be linked with them.
#   kokkos_headers.sh FOLDER
# Debian's next release has a Kokkos 5 for the host, whose package carries the headers of every back end; what its
# configuration says is changed to Serial and CUDA on Hopper. Exit code 69, with the reason: they cannot be had.
set -euo pipefail

folder=$1
fail() {
  echo "$*" >&2
  exit 69
}
for tool in apt-get dpkg-deb; do
  command -v $tool >/dev/null || fail "there is no $tool here"
done
sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true)
mirror=$(sed -n 's/#.*//; s|.*\(https\{0,1\}://[^ ]*/debian\)/*\( .*\)\{0,1\}$|\1|p' <<<"$sources" | sed -n 1p)
[ -n "$mirror" ] || fail "apt knows no mirror of Debian"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb $mirror sid main" >"$work/sources.list"
apt() {
  timeout 120 apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- \
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" "$@" >"$work/log" 2>&1 ||
    fail "apt-get $1 failed for sid of $mirror: $(tail -n 1 "$work/log")"
}
apt update
(cd "$work" && apt download libkokkos-dev)
dpkg-deb -x "$work"/libkokkos-dev_*.deb "$work/package"
headers=$work/package/usr/include/kokkos
[ -f "$headers/KokkosCore_config.h" ] || fail "libkokkos-dev has no KokkosCore_config.h"
[ -f "$headers/Cuda/Kokkos_Cuda.hpp" ] || fail "libkokkos-dev has no headers of the CUDA back end"

# set_to VALUE NAME: what the configuration says of a back end or processor.
set_to() {
  local line="/* #undef $2 */"
  [ "$1" = off ] || line="#define $2"
  sed -i "s@^\(#define $2\|/\* #undef $2 \*/\)\$@$line@" "$headers/KokkosCore_config.h" "$headers/desul/atomics/Config.hpp"
}
for back_end in OPENMP THREADS; do
  set_to off "KOKKOS_ENABLE_$back_end"
  set_to off "DESUL_ATOMICS_ENABLE_$back_end"
done
for name in KOKKOS_ENABLE_SERIAL KOKKOS_ENABLE_CUDA KOKKOS_ENABLE_CUDA_CONSTEXPR KOKKOS_ARCH_HOPPER KOKKOS_ARCH_HOPPER90 \
  DESUL_ATOMICS_ENABLE_CUDA; do
  set_to on $name
done
grep -qx '#define KOKKOS_ENABLE_CUDA' "$headers/KokkosCore_config.h" || fail "KokkosCore_config.h cannot be set to CUDA"

# The headers of the back ends that are there, one file for each of three places that include them.
includes() {
  printf '#pragma once\n' >"$headers/$1"
  shift
  printf '#include <%s>\n' "$@"
}
includes KokkosCore_Config_FwdBackend.hpp fwd/Kokkos_Fwd_SERIAL.hpp fwd/Kokkos_Fwd_CUDA.hpp >>"$headers/KokkosCore_Config_FwdBackend.hpp"
includes KokkosCore_Config_SetupBackend.hpp setup/Kokkos_Setup_Cuda.hpp >>"$headers/KokkosCore_Config_SetupBackend.hpp"
includes KokkosCore_Config_DeclareBackend.hpp decl/Kokkos_Declare_SERIAL.hpp decl/Kokkos_Declare_CUDA.hpp >>"$headers/KokkosCore_Config_DeclareBackend.hpp"

rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mv "$headers" "$folder"
