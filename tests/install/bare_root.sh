# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that start on a bare Debian 12: debootstrap makes one in a folder, and commands run in it by chroot,
# in namespaces of their own, so that nothing stays mounted or running, however a test ends.
#
# The bare system gets what this machine knows of its network and no more: the mirror and the settings of apt, those of
# pip, proxies, certificates, names. It has no compiler, no MPI, no ccache and nothing of a build done here.

# Ends the test with 77, skipped, where this machine cannot do it.
bare_root_or_skip() {
  local reason=""
  if [ "$(id -u)" -ne 0 ]; then
    reason="only root makes devices and calls chroot"
  elif ! command -v debootstrap >/dev/null; then
    reason="there is no debootstrap here"
  elif ! unshare --mount --pid --fork true 2>/dev/null; then
    reason="this machine lets nobody have namespaces"
  elif [ "$(df --output=avail -BG . | tail -n 1 | tr -dc 0-9)" -lt 8 ]; then
    reason="less than 8 GB are free in $PWD"
  fi
  [ -z "$reason" ] || skip "$reason"
}

skip() {
  echo "skipped: $1"
  exit 77
}

# apt's settings of this machine that are about the network, as a file of settings.
network_settings_of_apt() {
  apt-config dump | grep -E '^Acquire::(http|https|ftp|ForceIPv|Retries|Check-)' || true
  echo 'Acquire::https::CaInfo "/etc/certificates_of_the_host.crt";'
}

# make_bare_root: sets bare_root to a folder with Debian 12 in it, below the current one. Packages are kept in debs/.
make_bare_root() {
  local mirror certificates file
  bare_root=$PWD/root
  # shellcheck disable=SC2016  # for apt
  mirror=$(apt-get indextargets --format '$(SITE)' 'Codename: bookworm' 'Created-By: Packages' 2>/dev/null |
    grep -v security | sed -n 1p) || mirror=
  # A folder that was left by a test that was killed. Nothing is mounted in it: see in_bare_root.
  rm -rf --one-file-system "$bare_root"
  mkdir -p debs
  # shellcheck disable=SC2086  # without a mirror it has one of its own
  if ! debootstrap --variant=minbase --cache-dir="$PWD/debs" bookworm "$bare_root" $mirror >debootstrap.log 2>&1; then
    grep -qE 'Failed getting release|Couldn.t download|Unable to|Temporary failure' debootstrap.log &&
      skip "debootstrap does not reach a mirror: $(tail -n 1 debootstrap.log)"
    tail -n 20 debootstrap.log
    return 1
  fi
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
    [ ! -r "$file" ] || cp --dereference "$file" "$bare_root$file"
  done
  network_settings_of_apt >"$bare_root/etc/apt/apt.conf.d/90host"
  certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
  [ ! -r "$certificates" ] || cp "$certificates" "$bare_root/etc/certificates_of_the_host.crt"
}

# copy_sources FROM FOLDER_IN_ROOT NAME...: these files and folders as a clone has them; without git, as they are.
copy_sources() {
  local from=$1 to=$bare_root$2
  shift 2
  mkdir -p "$to"
  if git -C "$from" rev-parse --git-dir >/dev/null 2>&1; then
    git -C "$from" ls-files -z --cached --others --exclude-standard -- "$@" | while IFS= read -r -d '' file; do
      # What git still has and nobody else.
      [ ! -e "$from/$file" ] || printf '%s\0' "$file"
    done | tar -c -C "$from" --null -T - | tar -x -C "$to"
  else
    tar -c -C "$from" --exclude='./build*' "$@" | tar -x -C "$to"
  fi
}

# What of this machine is to be seen in the bare system: a folder here, where it is there, and so on.
bare_binds=()

# in_bare_root [NAME=VALUE ...] COMMAND...: runs it as root of the bare system, with nothing of this environment but
# proxies and pip's settings. All that it starts ends with it.
in_bare_root() {
  local name environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8)
  for name in $(compgen -e | grep -vx PIP_FIND_LINKS | grep -E '^(PIP_|(http|https|ftp|no)_proxy$|(HTTP|HTTPS|FTP|NO)_PROXY$)' || true); do
    environment+=("$name=${!name}")
  done
  [ ! -e "$bare_root/etc/certificates_of_the_host.crt" ] ||
    environment+=(PIP_CERT=/etc/certificates_of_the_host.crt)
  # shellcheck disable=SC2016  # for the inner shell
  unshare --mount --propagation private --pid --fork --kill-child bash -c '
    set -e
    root=$1
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mkdir -p "$root/var/cache/apt/archives"
    mount --bind "$2" "$root/var/cache/apt/archives"
    shift 2
    while [ "$1" != -- ]; do
      mkdir -p "$root$2"
      mount --bind "$1" "$root$2"
      shift 2
    done
    shift
    exec chroot "$root" /usr/bin/env -i "$@"' bare_root "$bare_root" "$PWD/debs" "${bare_binds[@]}" -- "${environment[@]}" "$@"
}

remove_bare_root() {
  [ -n "${FINETUNE_KEEP_BARE_ROOT:-}" ] || rm -rf --one-file-system "$bare_root"
}
