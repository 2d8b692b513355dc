# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: how fast is it, and is the memory that of the plan?

bench() {
  local tiny=()
  [ "$mode" = full ] || tiny=(--tiny)
  bounded "$bin/gpu_bench" "${tiny[@]}" --budget 120 --json "$figures" | tee "$out/bench.txt"
}

# prepare_shapes: models of random weights, and samples as long as the longest run.
prepare_shapes() {
  local shape
  for shape in 1b 8b tiny; do
    mkdir -p "$work/$shape"
    run_numbers shape $shape "$work/$shape/config.json"
  done
  vocabulary=128256
  longest=8192
  if [ "$mode" = rehearse ]; then
    vocabulary=512
    longest=96
  fi
  # Every run ends with a checkpoint, of 15 GB and more: to memory, where there is enough.
  large=$work/large
  if [ "$(df --output=avail -BG /dev/shm 2>/dev/null | tail -n 1 | tr -dc 0-9)" -ge 48 ] 2>/dev/null; then
    large=$(mktemp -d /dev/shm/finetune-gpu.XXXXXX)
    trap 'rm -rf "$work" "$large"' EXIT
  fi
  run_numbers tokens "$work/long.jsonl" $vocabulary $longest 64
  cat >"$work/shapes.toml" <<'END'
[model]
path = "1b"
init = "random"
[data]
path = "long.jsonl"
format = "tokens"
[train]
output = "output"
[optimizer]
lr = 1e-5
END
}

# What the whole GPU holds, by the driver, until it is ended.
watch_memory() {
  while nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null; do sleep 0.5; done >"$1"
}

# run_shape NAME SHAPE STEPS LENGTH MICRO_BATCH [key=value...]: ends with 77 where the plan says that it does not fit.
run_shape() {
  local name=$1 shape=$2 steps=$3 length=$4 micro=$5 code=0
  shift 5
  if [ "$mode" = rehearse ]; then
    shape=tiny length=$longest
  fi
  bounded "$finetune" "$work/shapes.toml" "model.path=$work/$shape" "data.max_seq_length=$length" \
    "train.micro_batch=$micro" "train.global_batch=$((2 * micro))" "train.max_steps=$steps" train.device=gpu \
    train.seed=3 checkpoint.async=false checkpoint.read_back=false "data.cache_dir=$work/token-cache" \
    "train.output=$large/$name" "$@" >"$runs/$name.log" 2>&1 || code=$?
  mkdir -p "$runs/$name"
  [ ! -f "$large/$name/metrics.jsonl" ] || mv "$large/$name/metrics.jsonl" "$runs/$name"
  rm -rf "${large:?}/$name"
  [ $code -eq 0 ] && return
  tail -n 20 "$runs/$name.log"
  if [ $code -eq 69 ] && grep -c 'memory per rank' "$runs/$name.log" >/dev/null; then
    skip "$(grep -o 'needs [^.]*\.[^.]* per rank ([^)]*)' "$runs/$name.log" | sed -n 1p): the plan refuses it"
  fi
  fail "the run $name ended with $code: $(grep '^error' "$runs/$name.log" | tail -n 1)"
}

# step_of NAME SHAPE STEPS LENGTH MICRO_BATCH [key=value...]: a figure; a FAIL if tensors take more than was planned.
step_of() {
  local watcher
  watch_memory "$work/memory.$1" &
  watcher=$!
  trap 'kill '$watcher' 2>/dev/null || true' EXIT
  run_shape "$@"
  local length=$4 shape=$2
  if [ "$mode" = rehearse ]; then
    shape=tiny length=$longest
  fi
  run_numbers step "$1" "$work/$shape/config.json" "$runs/$1/metrics.jsonl" "$runs/$1.log" "$device_name" "$length" \
    "$work/memory.$1" | tee -a "$figures"
}

# Launches and waits of the host per step, counted by CUPTI: the difference between two runs.
launches_of() {
  local name=$1 counter=$bin/count_launches.so steps
  shift
  [ "$mode" = rehearse ] || [ -f "$counter" ] || skip "the bundle has no count_launches.so: it was built without CUPTI"
  for steps in 4 8; do
    CUDA_INJECTION64_PATH=$counter FINETUNE_LAUNCHES=$work/launches.$steps \
      FINETUNE_SIMULATED_REPORT=$work/launches.$steps run_shape "$name.$steps" 1b $steps "$@"
    [ "$mode" = full ] || mv "$work/launches.$steps.0" "$work/launches.$steps"
    [ -s "$work/launches.$steps" ] || skip "CUPTI counted nothing"
  done
  run_numbers launches "$name" "$work/launches.4" "$work/launches.8" "$device_name" | tee -a "$figures"
}

# The same model with every way of keeping activations and of adding: the cheapest that fits is what the plan chooses.
call_b() {
  prepare_shapes
  check bench 150 bench
  check step_1b_2k 25 step_of 1b_2k 1b 8 2048 8
  check step_1b_4k 25 step_of 1b_4k 1b 8 4096 4
  check step_1b_8k 25 step_of 1b_8k 1b 8 8192 2
  check step_1b_4k_full_recompute 25 step_of 1b_4k_full_recompute 1b 8 4096 4 train.activation_checkpointing=full
  check step_1b_4k_selective 25 step_of 1b_4k_selective 1b 8 4096 4 train.activation_checkpointing=selective
  check step_1b_4k_any_order 25 step_of 1b_4k_any_order 1b 8 4096 4 train.determinism=off
  check step_1b_4k_topology 25 step_of 1b_4k_topology 1b 8 4096 4 train.determinism=topology
  check step_8b_lora_2k 50 step_of 8b_lora_2k 8b 4 2048 4 adapter.name=lora
  check step_8b_lora_dropout_2k 50 step_of 8b_lora_dropout_2k 8b 4 2048 2 adapter.name=lora adapter.lora_dropout=0.05
  check step_8b_qlora_2k 60 step_of 8b_qlora_2k 8b 4 2048 2 adapter.name=qlora
  check step_8b_full_8k 60 step_of 8b_full_8k 8b 4 8192 1 optimizer.name=adamw8bit precision.mode=bf16-true
  check launches_1b_2k 30 launches_of 1b_2k_launches 2048 2
  check step_1b_4k_packed 25 step_of 1b_4k_packed 1b 8 4096 4 data.packing=true
  run_numbers table "$figures" "$out/figures-b.md"
}
