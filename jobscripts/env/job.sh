# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts for queues, which have set FINETUNE_ROOT: what a job trains, and with which program.

# The program leaves it to the last line of the script to say what is next.
export FINETUNE_JOBSCRIPT=1
# shellcheck disable=SC2034  # for site.sh
root=$FINETUNE_ROOT
# shellcheck source=read_site.sh
. "$FINETUNE_ROOT/jobscripts/env/read_site.sh"
echo "finetune: settings from $(printf '%s, ' "${sites[@]}" | sed 's/, $//')"
# shellcheck source=time.sh
. "$FINETUNE_ROOT/jobscripts/env/time.sh"
# shellcheck source=run.sh
. "$FINETUNE_ROOT/jobscripts/env/run.sh"

# refuse CODE WHERE PROBLEM WHY REMEDY: the error grammar of the program, and one of its exit codes.
refuse() {
  printf 'error: %s: %s (%s). %s\n' "${@:2}" >&2
  exit "$1"
}

# Sets FINETUNE_BINARY if the site has not.
find_binary() {
  local place
  for place in "$FINETUNE_BINARY" "$root/build/finetune" "$root/../../bin/finetune"; do
    if [ -n "$place" ] && [ -x "$place" ]; then
      FINETUNE_BINARY=$place
      return
    fi
  done
  refuse 69 "$root" "there is no program" "neither build/finetune nor ../../bin/finetune can be run" \
    "Build it with jobscripts/local.sh build, or set FINETUNE_BINARY in ~/.config/finetune/site.sh."
}

# choose_deck INDEX WORD...: sets deck and settings from DECK.toml key=value... With an INDEX, that of a task
# of an array, line INDEX of the file FINETUNE_SWEEP is added: key=value words, before them a deck if this task
# has one of its own. The task's output is the folder FINETUNE_SWEEP-INDEX, FINETUNE_SWEEP without its
# extension, unless the line has a train.output.
choose_deck() {
  local index=$1 line=() name=${FINETUNE_SWEEP:-}
  shift
  [ $# -gt 0 ] || refuse 64 "jobscript" "there is no deck" "the job says what to train" \
    "Its first word is a deck: DECK.toml [key=value ...]; see the head of the jobscript."
  deck=$1
  settings=("${@:2}")
  [ -n "$index" ] || return 0
  [ -n "${FINETUNE_SWEEP:-}" ] || refuse 64 "array task $index" "FINETUNE_SWEEP is not set" \
    "all tasks would write to one output folder" \
    "Set it to a file with a line of key=value words for each task; see jobscripts/README.md."
  [ -r "$FINETUNE_SWEEP" ] || refuse 64 "$FINETUNE_SWEEP" "it cannot be read" \
    "it says what array task $index trains" "Set FINETUNE_SWEEP to a file; its path counts from the job's folder."
  read -ra line < <(sed -n "${index}p" "$FINETUNE_SWEEP") || true
  [ ${#line[@]} -gt 0 ] || refuse 64 "$FINETUNE_SWEEP" "line $index is empty or not there" \
    "it says what array task $index trains" "Lines count from 1: ask for tasks 1 to $(grep -c '' "$FINETUNE_SWEEP")."
  if [[ ${line[0]} != *=* ]]; then
    deck=${line[0]}
    line=("${line[@]:1}")
  fi
  [[ ${FINETUNE_SWEEP##*/} != *.* ]] || name=${FINETUNE_SWEEP%.*}
  settings+=("train.output=$name-$index" "${line[@]}")
}
