#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which settings a job gets: those of the site, of the user, of FINETUNE_SITE, of the environment.
#   tests/cluster/site_test.sh WORK_FOLDER
set -uo pipefail
# shellcheck source=../install/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../install/common.sh"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
work=${1:?a folder to work in}
rm -rf "$work"
mkdir -p "$work/bin"
cd "$work" || exit 1
work=$PWD

# program NAME: makes a program of what comes on stdin.
program() {
  { echo '#!/usr/bin/env bash'; cat; } >"bin/$1"
  chmod +x "bin/$1"
}
program finetune </dev/null
program squeue </dev/null
program scontrol <<<"printf 'JobId=7\n   Command=%s d.toml\n' '$work/sites/jobscripts/slurm/train.sh'"
# shellcheck disable=SC2016  # for the program
program srun <<<'echo "srun $*" >>"$LOG"'
export PATH=$work/bin:$PATH LOG=$work/log SLURM_JOB_ID=7 FINETUNE_ASK_AGAIN=" "
unset XDG_CONFIG_HOME "${!SLURM_ARRAY_@}"
slurm=$top/jobscripts/slurm/train.sh

# site_of [FINETUNE_SITE [FINETUNE_SRUN_OPTIONS]]: runs a job with these.
site_of() {
  (
    unset FINETUNE_BINARY
    export HOME=$work/other_home FINETUNE_SRUN_OPTIONS FINETUNE_SITE
    FINETUNE_SITE=${1:-} FINETUNE_SRUN_OPTIONS=${2:-}
    "$slurm" d.toml
  ) >out 2>&1
}
mkdir -p other_home/.config/finetune sites
cp -r "$top/jobscripts" sites
sed -i -e 's|^\(: .[$]{FINETUNE_SRUN_OPTIONS:=\).*|\1--of-the-site}"|' -e "s|^\(: .[$]{FINETUNE_BINARY:=\)|\1$work/bin/finetune|" \
  sites/jobscripts/env/site.sh
: >"$LOG"
site_of
expect "only the one that comes along" "srun --of-the-site" "$(cut -d ' ' -f 1,2 "$LOG")"
expect "it is said which" "finetune: settings from $work/sites/jobscripts/env/site.sh" "$(head -n 1 out)"
# As lines of site.sh are copied: the options are set, the program is left open.
cat >other_home/.config/finetune/site.sh <<'SITE'
: "${FINETUNE_SRUN_OPTIONS:=--of-the-user}"
: "${FINETUNE_BINARY:=}"
SITE
: >"$LOG"
site_of
expect "the user's counts, and what it leaves empty is the site's" "srun --of-the-user $work/bin/finetune" \
  "$(cut -d ' ' -f 1,2,6 "$LOG")"
printf 'FINETUNE_SRUN_OPTIONS=--of-the-job\n' >"job site.sh"
: >"$LOG"
site_of "$work/job site.sh"
expect "what FINETUNE_SITE names counts before the user's" "srun --of-the-job" "$(cut -d ' ' -f 1,2 "$LOG")"
expect "all three are named" \
  "finetune: settings from $work/sites/jobscripts/env/site.sh, $work/other_home/.config/finetune/site.sh, $work/job site.sh" \
  "$(head -n 1 out)"
: >"$LOG"
rm "job site.sh"
site_of "" --of-the-environment
expect "the environment counts before files that ask for it" "srun --of-the-environment" \
  "$(cut -d ' ' -f 1,2 "$LOG")"
site_of "$work/job site.sh"
expect "FINETUNE_SITE is not there: exit code" 69 $?
expect "it is said that FINETUNE_SITE is not there" 1 \
  "$(grep -c "^error: FINETUNE_SITE=$work/job site.sh: this file cannot be read" out)"
expect "it stays strict afterwards" "ehuB" \
  "$(root=$top bash -c 'set -eu; . "$root/jobscripts/env/read_site.sh"; echo "${-/c/}"')"
finish
