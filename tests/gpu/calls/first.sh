# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: the first minutes on a GPU. Figures that only a GPU can give come before what a CPU shows as well.

# torch_step NAME SHAPE LENGTH MICRO_BATCH full|lora [--compile] [--recompute]: transformers (and peft) on the same GPU,
# shape and batch, as a figure next to ours.
torch_step() {
  local name=$1 shape=$2
  [ "$mode" = full ] || shape=tiny
  python3 -c 'import torch, transformers' 2>/dev/null || skip "python3 has no transformers"
  bounded python3 "$here/side_by_side.py" "torch/$name" "$work/$shape/config.json" "${@:3}" | tee -a "$figures"
}

# Weights once for all runs of 8B: drawn by each, they would take 20 s every time.
shared_weights() {
  [ "$mode" = full ] || skip "small models draw theirs in no time"
  [ "$large" != "$work/large" ] || skip "there is no room for 16 GB in /dev/shm"
  bounded python3 "$here/random_weights.py" "$work/8b/config.json" "$large/8b"
  cp "$work/8b/config.json" "$large/8b"
  ln -sfn "$large/8b/model.safetensors" "$work/8b/model.safetensors"
}

# bench_of TEXT...: the figures of gpu_bench whose names have one of these in them.
bench_of() {
  local tiny=() text
  [ "$mode" = full ] || tiny=(--tiny)
  for text in "$@"; do
    bounded "$bin/gpu_bench" "${tiny[@]}" --budget 10 --filter "$text" --json "$figures" | tee -a "$out/bench.txt"
  done
}

call_first() {
  prepare_decks
  prepare_shapes
  few=5
  many=12
  check gpu_test 60 gtests gpu_test
  check bf16_mixed 20 as_on_cpu bf16_mixed 12 2e-2 precision.mode=bf16-mixed
  check same_bits_run 20 gpu_twice run run
  check restarted 25 restarted
  check communicate_alone 20 communicates_alone
  check weights 30 shared_weights
  local of_8b=()
  [ ! -e "$work/8b/model.safetensors" ] || of_8b=(model.init=pretrained)
  check step_8b_lora_4k 45 step_of 8b_lora_4k 8b 4 4096 2 adapter.name=lora "${of_8b[@]}"
  check torch_8b_lora_4k 30 torch_step 8b_lora_4k 8b 4096 2 lora
  check step_8b_full_4k 45 step_of 8b_full_4k 8b 4 4096 1 optimizer.name=adamw8bit precision.mode=bf16-true "${of_8b[@]}"
  check torch_8b_full_4k 30 torch_step 8b_full_4k 8b 4096 1 full --recompute
  check step_1b_4k 15 step_of 1b_4k 1b 8 4096 4
  check torch_1b_4k 15 torch_step 1b_4k 1b 4096 4 full
  check torch_1b_4k_compiled 35 torch_step 1b_4k_compiled 1b 4096 4 full --compile
  check step_8b_lora_dropout_2k 40 step_of 8b_lora_dropout_2k 8b 4 2048 2 adapter.name=lora adapter.lora_dropout=0.05 "${of_8b[@]}"
  check step_8b_qlora_2k 40 step_of 8b_qlora_2k 8b 4 2048 2 adapter.name=qlora "${of_8b[@]}"
  check step_8b_fp8_2k 40 step_of 8b_fp8_2k 8b 4 2048 2 adapter.name=lora precision.mode=fp8-mixed "${of_8b[@]}"
  check launches_1b_2k 25 launches_of 1b_2k_launches 2048 2
  check bench 40 bench_of gemm/bf16 copy attention swiglu rope loss rms_norm
  check undisturbed 10 undisturbed
  check asked_to_stop 15 asked_to_stop
  check out_of_memory 10 out_of_memory
  run_numbers table "$figures" "$out/figures-first.md"
}
