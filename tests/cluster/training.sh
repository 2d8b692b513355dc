# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests that train through jobscripts: finetune (the program) and folder (to work in) are set.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=expect.sh
. "$here/expect.sh"
top=$(cd "$here/../.." && pwd -P)
num_steps=20
# Sums in fixed point, so that bits do not depend on who adds what.
deck_settings=("train.max_steps=$num_steps" train.determinism=topology checkpoint.save_steps=2)

# wait_until WHAT COMMAND...: asks again and again; ends the test where it takes far too long.
wait_until() {
  local limit=$((SECONDS + run_limit)) what=$1
  shift
  until "$@"; do
    if [ $SECONDS -ge $limit ]; then
      echo "WRONG: waited in vain: $what"
      give_up
    fi
    sleep 0.1
  done
}

give_up() {
  tail -v -n 40 "$folder"/*.log "$folder"/*/*.log /run/log/* 2>/dev/null
  exit 1
}

# A folder with the deck, and the program that is slow as long as its job has not been started again, SLOW_MS a
# step, so that what happens to the job finds it at work.
prepare() {
  rm -rf "$folder"
  mkdir -p "$folder"
  cp -r "$top/inputs/smoke" "$folder/smoke"
  sed "s|\.\./smoke|$folder/smoke|" "$top/inputs/smoke/pretraining.toml" >"$folder/deck.toml"
  cat >"$folder/slow_at_first" <<EOF
#!$BASH
[ "\${SLURM_RESTART_COUNT:-0}\${FINETUNE_RESTARTS:-}" != 0 ] || export FINETUNE_FAULT=step.optim:*:*:slow=\${SLOW_MS:-1000}
exec "$finetune" "\$@"
EOF
  chmod +x "$folder/slow_at_first"
}

# train_reference NAME [key=value...]: an uninterrupted run, of four ranks on one node.
train_reference() {
  "$here/../support/mpirun.sh" 4 "$finetune" "$folder/deck.toml" "${deck_settings[@]}" "${@:2}" \
    train.output="$folder/$1" >"$folder/$1.log" 2>&1 && return
  echo "WRONG: the run $1 in one piece"
  give_up
}

steps_of() {
  grep -c '"loss"' "$folder/$1/metrics.jsonl" 2>/dev/null || true
}

# has_steps NAME N: whether its run has come so far.
has_steps() {
  local steps
  steps=$(steps_of "$1")
  [ "${steps:-0}" -ge "$2" ]
}

# same_weights NAME NAME
same_weights() {
  local name
  for name in "$@"; do
    [ -d "$folder/$name.model" ] || "$finetune" export "$folder/$name" "$folder/$name.model" >/dev/null || return 1
  done
  cmp "$folder/$1.model/model.safetensors" "$folder/$2.model/model.safetensors"
}

different_weights() {
  ! cmp -s "$folder/$1.model/model.safetensors" "$folder/$2.model/model.safetensors"
}
