# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by local.sh and tests/run.sh: brings a Debian 12 machine to the point where `ninja` works.
# Says what it does, asks nothing, does nothing twice.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
build=$root/build
# shellcheck source=env/read_site.sh
. "$root/jobscripts/env/read_site.sh"

# What CMakeLists.txt looks for, and what local.sh and tests/run.sh call.
packages=(
  g++ cmake ninja-build ccache pkg-config python3-pip
  libopenmpi-dev openmpi-bin libhdf5-openmpi-dev libtrilinos-kokkos-dev
  libtoml11-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libssl-dev libisal-dev libxxhash-dev libpcre2-dev libutf8proc-dev libyaml-cpp-dev zlib1g-dev libzstd-dev
  liblz4-dev libsnappy-dev
  libgtest-dev libbenchmark-dev
)
# libtorch, and the two small libraries that its CPU part is linked with.
wheels=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
# What its CUDA part is linked with and the CUDA 13 toolkit does not bring.
cuda_wheels=(nvidia-cufile==1.15.1.6 nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5)

# Eight files are compiled as one, which reads their headers once: a third of the time. FINETUNE_UNITY=OFF compiles each
# file alone, for those who change them. And warnings are errors where every header is known: on the system of the tests.
build_options=("FINETUNE_ARCH=$FINETUNE_ARCH" "CMAKE_UNITY_BUILD=${FINETUNE_UNITY:-ON}" CMAKE_UNITY_BUILD_BATCH_SIZE=8
  "FINETUNE_WITH_CUDA=$([ "$FINETUNE_WITH_CUDA" = 1 ] && echo ON || echo OFF)")
if grep -qs '^VERSION_ID="12"' /etc/os-release && grep -qs '^ID=debian' /etc/os-release; then
  build_options+=(FINETUNE_WERROR=ON)
fi

say() { printf 'finetune: %s\n' "$*"; }

# begin STAGE: what the seconds from here on are spent on. say_times: a line per stage that took one.
stages=()
stage_seconds=()
begin() {
  stages+=("$1")
  stage_seconds+=("$SECONDS")
}
say_times() {
  local i end
  stage_seconds+=("$SECONDS")
  say "where the time went:"
  for i in "${!stages[@]}"; do
    end=$((stage_seconds[i + 1] - stage_seconds[i]))
    [ $end -eq 0 ] || printf '  %-28s %4d min %02d s\n' "${stages[i]}" $((end / 60)) $((end % 60))
  done
  unset 'stage_seconds[-1]'
}

# stop WHERE PROBLEM WHY REMEDY: the error grammar and the exit code "environment" of the program.
stop() {
  printf 'error: %s: %s (%s). %s\n' "$@" >&2
  exit 69
}

# Cores this process may use: physical ones, within its CPU mask and its container's share of them.
count_cores() {
  local cores physical quota period
  cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
  physical=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l)
  if [ "$physical" -gt 0 ] && [ "$physical" -lt "$cores" ]; then cores=$physical; fi
  if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [ "$quota" != max ] &&
    [ $((quota / period)) -lt "$cores" ]; then
    cores=$((quota / period))
  fi
  echo $((cores > 0 ? cores : 1))
}

# GPUs that ranks of a build with CUDA compute on: those that are visible; 0 in other builds.
count_gpus() {
  local listed device count=0
  if [ "$FINETUNE_WITH_CUDA" != 1 ] || ! command -v nvidia-smi >/dev/null; then
    echo 0
  elif [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    # CUDA stops at the first that is none; Slurm names a device that does not exist.
    IFS=, read -r -a listed <<<"$CUDA_VISIBLE_DEVICES"
    for device in "${listed[@]}"; do
      case $device in -* | NoDevFiles | '') break ;; esac
      count=$((count + 1))
    done
    echo $count
  else
    nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true
  fi
}

# expand LIST: "0-2,8" as 0 1 2 8, how Linux writes sets of processors.
expand() {
  local part parts
  IFS=, read -r -a parts <<<"$1"
  for part in "${parts[@]}"; do seq "${part%-*}" "${part#*-}"; done
}

# visible_gpus: the PCI addresses of the GPUs that ranks may use, as the system writes them, in their order; nothing if
# one of them is not known (a part of a GPU).
visible_gpus() {
  local table wanted listed line chosen=()
  table=$(nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv,noheader 2>/dev/null | tr -d ' ' | tr '[:upper:]' '[:lower:]')
  if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    IFS=, read -r -a listed <<<"${CUDA_VISIBLE_DEVICES,,}"
    for wanted in "${listed[@]}"; do
      case $wanted in -* | nodevfiles | '') break ;; esac
      line=$(awk -F, -v wanted="$wanted" '$1 == wanted || index($2, wanted) == 1' <<<"$table")
      [ -n "$line" ] && [ "$(wc -l <<<"$line")" -eq 1 ] || return 0
      chosen+=("$line")
    done
  else
    mapfile -t chosen <<<"$table"
  fi
  # Drivers write eight digits of the domain.
  for line in "${chosen[@]}"; do sed 's/.*,//; s/^0000\(....:..:\)/\1/' <<<"$line"; done
}

# cores_near_gpus RANKS [SYSTEM] [PROCESSORS]: per rank a line with the processors near the GPU of its number, of those
# that this process may use; ranks whose GPUs are near the same ones share them out by whole cores. Nothing where
# the system does not say it.
cores_near_gpus() {
  local ranks=$1 system=${2:-/sys} own=${3:-$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)}
  local gpu i j near addresses=() lists=() shared position cores
  mapfile -t addresses < <(visible_gpus)
  [ "${#addresses[@]}" -ge "$ranks" ] || return 0
  for gpu in "${addresses[@]:0:ranks}"; do
    near=$(cat "$system/bus/pci/devices/$gpu/local_cpulist" 2>/dev/null) || return 0
    near=$(comm -12 <(expand "$near" | sort) <(expand "$own" | sort) | sort -n | paste -s -d ,)
    [ -n "$near" ] || return 0
    lists+=("$near")
  done
  for ((i = 0; i < ranks; i++)); do
    shared=0 position=0
    for ((j = 0; j < ranks; j++)); do
      [ "${lists[j]}" = "${lists[i]}" ] || continue
      [ $j -ge $i ] || position=$((position + 1))
      shared=$((shared + 1))
    done
    # Siblings of a core stay together: it is named by the first of them.
    cores=$(for j in ${lists[i]//,/ }; do
      near=$(cat "$system/devices/system/cpu/cpu$j/topology/thread_siblings_list" 2>/dev/null || echo "$j")
      echo "${near%%[-,]*} $j"
    done | sort -n -k 1,1 -k 2,2)
    near=$(awk -v shared=$shared -v position=$position '
      BEGIN { last = -1 }
      $1 != last { last = $1; core++ }
      { of[NR] = core; processor[NR] = $2 }
      END { for (i = 1; i <= NR; i++) if (int((of[i] - 1) * shared / core) == position) print processor[i] }' \
      <<<"$cores" | paste -s -d ,)
    [ -n "$near" ] || return 0
    echo "$near"
  done
}

# For bash -c, on a rank that mpirun starts: LISTS COMMAND...: becomes COMMAND, on the processors of its list.
# shellcheck disable=SC2016,SC2034
take_cores='lists=($1); shift; exec taskset -c "${lists[$OMPI_COMM_WORLD_LOCAL_RANK]}" "$@"'

# binding_of RANKS CORES GPUS: the options of mpirun that give each rank its cores. One with a GPU has threads for
# gradients, communication and files: its share of the cores.
binding_of() {
  local share=$(($2 / $1))
  if [ "$3" -gt 0 ]; then echo "--map-by ppr:$1:node:PE=$((share > 0 ? share : 1)) --bind-to core"; else echo "--bind-to core"; fi
}

# install_packages NAME...: by apt, those that are not installed yet.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    # Another system: CMake names what it misses, spack/ is the way to get it.
    [ -f "$build/build.ninja" ] || say "no Debian packages here: taking what this system offers (see spack/)"
    return
  fi
  local name missing=() sudo=()
  local -A installed=()
  while read -r name; do installed[$name]=1; done < <(
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p')
  for name in "$@"; do
    [ -n "${installed[$name]:-}" ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || stop apt "these packages are missing: ${missing[*]}" \
      "installing them needs root, or sudo without a password" \
      "Have the administrator run: apt-get install ${missing[*]}"
    sudo=(sudo -n)
  fi
  say "installing by apt: ${missing[*]}"
  mkdir -p "$build"
  if ! {
    "${sudo[@]}" apt-get update -q &&
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
        --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"
  } </dev/null >"$build/apt.log" 2>&1; then
    stop apt "could not install ${missing[*]}" "$(last_error '^E:' "$build/apt.log")" \
      "Is this machine online? Everything apt said is in $build/apt.log; start again when it is solved."
  fi
}

# last_error PATTERN FILE: the last line of FILE that matches, or its last line.
last_error() {
  { grep -e "$1" "$2" || cat "$2"; } | tail -n 1
}

# Sets `libtorch` to the folder that holds libtorch's include/ and lib/, and fetches it if it has to.
find_libtorch() {
  libtorch=${FINETUNE_LIBTORCH:-}
  if [ -n "$libtorch" ]; then
    [ -f "$libtorch/lib/libtorch_cpu.so" ] || stop "FINETUNE_LIBTORCH=$libtorch" \
      "there is no libtorch in it" "lib/libtorch_cpu.so is missing" \
      "Name the folder that holds libtorch's include and lib; in a pip installation it is called torch."
    return
  fi
  # A build folder made with another libtorch keeps it.
  if [ -f "$build/CMakeCache.txt" ]; then
    libtorch=$(sed -n 's/^LibTorch_ROOT:[A-Z]*=//p' "$build/CMakeCache.txt")
    if [ "$libtorch" != "$build/libtorch/torch" ] && [ -f "$libtorch/lib/libtorch_cpu.so" ]; then return; fi
  fi
  libtorch=$build/libtorch/torch
  [ "${FINETUNE_WITH_CUDA:-0}" != 1 ] || wheels+=("${cuda_wheels[@]}")
  # The list is written last, so a folder with the right list in it is whole.
  # One that holds more, for CUDA, does as well.
  case "$(cat "$build/libtorch/wheels.txt" 2>/dev/null)" in
    "${wheels[*]}"*) ;;
    *) fetch_libtorch ;;
  esac
}

fetch_libtorch() {
  local partial=$build/libtorch.partial
  local python=python3
  python3 -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3
  $python -m pip --version >/dev/null 2>&1 || stop pip "python3 has no pip" \
    "libtorch comes from the Python package index" \
    "Install python3-pip, or set FINETUNE_LIBTORCH to the folder of a libtorch 2.11."
  say "fetching ${wheels[0]/==/ } by pip (about 0.6 GB, 1.4 GB unpacked) into $build/libtorch"
  rm -rf "$partial"
  mkdir -p "$partial/tmp"
  # The wheel's C++ part is the same for every Python: taking a fixed one makes it independent of the
  # system's. TMPDIR: /tmp is often too small for it.
  if ! TMPDIR=$partial/tmp $python -m pip install --quiet --no-input --disable-pip-version-check \
    --no-cache-dir --no-deps --no-compile --only-binary=:all: --python-version 3.12 \
    --target "$partial/site" "${wheels[@]}" </dev/null >"$build/pip.log" 2>&1; then
    rm -rf "$partial"
    stop pip "could not fetch ${wheels[*]}" "$(last_error '^ERROR' "$build/pip.log")" \
      "Is this machine online, with 4 GB free? What pip said is in $build/pip.log. Without network, set FINETUNE_LIBTORCH to the folder of a libtorch 2.11."
  fi
  rm -rf "$build/libtorch"
  mv "$partial/site" "$build/libtorch"
  rm -rf "$partial"
  echo "${wheels[*]}" >"$build/libtorch/wheels.txt"
}

# in_cache FOLDER NAME=VALUE: whether FOLDER is configured with this value.
in_cache() {
  grep -q "^${2%%=*}:[A-Z]*=${2#*=}\$" "$1/CMakeCache.txt" 2>/dev/null
}

# configure FOLDER NAME=VALUE...: runs CMake unless FOLDER is configured with these values already. New
# folders of sources count as a change: ninja alone knows only those it was configured with.
configure() {
  local folder=$1 option options=() done=yes
  shift
  if [ ! -f "$folder/build.ninja" ] || [ -n "$(find "$root"/{src,modules,app,tests} \
    -name CMakeLists.txt -newer "$folder/build.ninja" -print -quit)" ]; then done=no; fi
  in_cache "$folder" "CMAKE_HOME_DIRECTORY=$root" || done=no
  for option in "LibTorch_ROOT=$libtorch" "$@"; do
    options+=("-D$option")
    in_cache "$folder" "$option" || done=no
    # CMake does not change the compiler of a folder that it knows.
    case $option in
      CMAKE_CXX_COMPILER=*) in_cache "$folder" "$option" || rm -rf "$folder"/CMake{Cache.txt,Files} ;;
    esac
  done
  [ $done = no ] || return 0
  say "configuring $folder"
  mkdir -p "$folder"
  # Found libraries are looked for again: they may come from another libtorch.
  if ! cmake -S "$root" -B "$folder" -G Ninja -ULibTorch_* "${options[@]}" \
    >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    stop "$folder" "CMake could not configure it" "its messages are above" \
      "Install what it misses; rm -r $folder starts afresh."
  fi
}

# compile FOLDER [TARGET...]
compile() {
  local folder=$1
  shift
  # Paths relative to the tree, so that another clone of it finds the same objects in the cache.
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  # Nothing to do is said by saying nothing.
  if [ "$(ninja -C "$folder" -n "$@" 2>/dev/null | tail -n 1)" = "ninja: no work to do." ]; then return; fi
  say "building $folder${1:+: $*}"
  ninja -C "$folder" -j "$(env -u OMP_NUM_THREADS nproc)" "$@" || stop "$folder" "the build failed" "the compiler's messages are above" \
    "If they are about this project, please report them."
}

# Sets `clang` to a clang++ with libFuzzer and sanitizers, or to nothing.
find_clang() {
  clang=$(command -v clang++) || clang=
  if [ -z "$clang" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$clang" -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
    clang=
  fi
}

set_up_machine() {
  # The one that comes with the sources goes without saying.
  [ ${#sites[@]} -eq 1 ] || say "settings from $(printf '%s, ' "${sites[@]}" | sed 's/, $//')"
  begin "Debian packages"
  install_packages "${packages[@]}"
  begin "libtorch"
  find_libtorch
}
