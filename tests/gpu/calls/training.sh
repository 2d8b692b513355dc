# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: runs of the program, and comparisons of them.

run_numbers() {
  python3 "$here/run_numbers.py" "$@"
}

# usual: settings of every run below. deck: which one. At the quickstart's own rate of learning, losses in narrow floats
# are 2 % apart after ten steps whatever computes them.
usual=(optimizer.lr=3e-4 metrics.answers=0 train.validate_steps=0 checkpoint.save_steps=0 data.validation_path= train.seed=3)

# prepare_decks: the instructions of the quickstart, and token ids for the small models of tests/golden.
prepare_decks() {
  deck=$root/inputs/quickstart.toml
  more=(train.global_batch=16 train.micro_batch=4)
  if [ "$mode" = rehearse ]; then
    deck=$root/inputs/smoke/instructions.toml
    more=(data.validation_fraction=0 optimizer.warmup_steps=0)
  fi
  usual+=("${more[@]}" "data.cache_dir=$work/token-cache")
  run_numbers tokens "$work/tokens.jsonl" 400 96 48
  cat >"$work/families.toml" <<'END'
[model]
path = "model"
[data]
path = "tokens.jsonl"
format = "tokens"
max_seq_length = 96
[train]
output = "output"
global_batch = 4
micro_batch = 2
[optimizer]
lr = 1e-3
END
}

# train NAME gpu|cpu EXIT_CODE [key=value...]: a run in $runs/NAME that has to end with this code.
train() {
  local name=$1 device=$2 expected=$3 code=0 start
  shift 3
  # What an earlier start of the run said proves nothing of this one.
  start=$runs/$name.start.log
  bounded "$finetune" "$deck" "${usual[@]}" "train.output=$runs/$name" "train.device=$device" "$@" \
    >"$start" 2>&1 || code=$?
  cat "$start" >>"$runs/$name.log"
  if [ $code -ne "$expected" ]; then
    tail -n 30 "$start"
    fail "the run $name on the $device ended with $code, not $expected: $(grep '^error' "$start" | tail -n 1)"
  fi
  # Never by accident on the CPU, and the other way round.
  local words="computes on GPUs"
  [ "$device" = gpu ] || words="computes on CPUs"
  [ $code -eq 69 ] || grep -c "$words" "$start" >/dev/null || fail "$name does not say that it $words"
}

# same_bits NAME NAME: every number of every step.
same_bits() {
  run_numbers same "$runs/$1/metrics.jsonl" "$runs/$2/metrics.jsonl" 0
}

# as_on_cpu NAME STEPS TOLERANCE [key=value...]: the same run on both, at the same time; losses within the tolerance,
# norms of gradients within three times of it.
as_on_cpu() {
  local name=$1 steps=$2 tolerance=$3 on_cpu code=0
  shift 3
  train "$name.cpu" cpu 0 "train.max_steps=$steps" "$@" &
  on_cpu=$!
  train "$name.gpu" gpu 0 "train.max_steps=$steps" "$@"
  wait $on_cpu || code=$?
  [ $code -eq 0 ] || exit $code
  run_numbers same "$runs/$name.cpu/metrics.jsonl" "$runs/$name.gpu/metrics.jsonl" "$tolerance"
}

# of_family FAMILY: the deck of a small model of tests/golden.
of_family() {
  mkdir -p "$work/families/$1"
  "$bin/golden_model" "$1" "$work/families/$1/model"
  cp "$work/tokens.jsonl" "$work/families.toml" "$work/families/$1"
  deck=$work/families/$1/families.toml
  usual=(train.seed=3 "data.cache_dir=$work/token-cache")
}

# exported NAME: the weights of a run's newest checkpoint, in $runs/NAME.exported.
exported() {
  rm -rf "$runs/$1.exported"
  bounded "$finetune" export "$runs/$1" "$runs/$1.exported"
}

# same_weights NAME NAME
same_weights() {
  exported "$1"
  exported "$2"
  cmp "$runs/$1.exported/model.safetensors" "$runs/$2.exported/model.safetensors" ||
    fail "the weights of $1 and $2 are not bitwise identical"
}
