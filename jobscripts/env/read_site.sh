# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by job.sh and setup.sh, which have set $root: reads what the site and the user have to say.
#
# The files, each optional but the first: env/site.sh, ~/.config/finetune/site.sh for who may not write that one,
# and the file that FINETUNE_SITE names. All that are there are read, in this order, and of several values for a
# FINETUNE_ variable the last counts; an empty one leaves what was said before. Each file sees the environment as
# it was, not the FINETUNE_ variables of the files before it, so that `: "${NAME:=value}"` means in all of them
# what it means in site.sh: the environment counts, and otherwise this value.
#
# Sets sites to the files that were read. Not in a function: what a site sources there declares its own variables.

if [ -n "${FINETUNE_SITE:-}" ] && [ ! -r "$FINETUNE_SITE" ]; then
  printf 'error: FINETUNE_SITE=%s: %s (%s). %s\n' "$FINETUNE_SITE" "this file cannot be read" \
    "it says how programs run here" "Name a file that all nodes see, or unset FINETUNE_SITE." >&2
  exit 69
fi
sites=()
site_candidates=("$root/jobscripts/env/site.sh" "${XDG_CONFIG_HOME:-${HOME:-/}/.config}/finetune/site.sh"
  "${FINETUNE_SITE:-}")
site_environment=" "
while read -r site_name; do
  # One that is empty says nothing.
  [ -z "${!site_name}" ] || site_environment+="$site_name "
done < <(compgen -v FINETUNE_)
declare -A site_values=() site_exports=()
# What a site sources may read variables that are not set, and end with whatever it likes.
site_options=$-
set +eu
for site_file in "${site_candidates[@]}"; do
  [ -r "$site_file" ] || continue
  sites+=("$site_file")
  # shellcheck source=site.sh
  . "$site_file"
  while read -r site_name; do
    case $site_environment in *" $site_name "*) continue ;; esac
    if [ -n "${!site_name}" ] || [ -z "${site_values[$site_name]+set}" ]; then
      site_values[$site_name]=${!site_name}
      site_exports[$site_name]=${!site_name@a}
    fi
    unset "$site_name"
  done < <(compgen -v FINETUNE_)
done
for site_name in "${!site_values[@]}"; do
  printf -v "$site_name" %s "${site_values[$site_name]}"
  case ${site_exports[$site_name]} in *x*) export "${site_name?}" ;; esac
done
case $site_options in *e*) set -e ;; esac
case $site_options in *u*) set -u ;; esac
