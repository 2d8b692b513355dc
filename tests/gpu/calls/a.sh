# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: is what a GPU computes right?

# gtests PROGRAM [FILTER]: none may fail; what is skipped for want of a GPU is a failure where there is one.
gtests() {
  local log=$work/$1.gtest code=0
  bounded "$bin/$1" --gtest_filter="${2:-*}" >"$log" 2>&1 || code=$?
  grep -E '^\[  (PASSED|FAILED|SKIPPED) |Failure$|^device under test' "$log" | sort -u
  tail -n 3 "$log"
  [ $code -eq 0 ] || fail "$1 ended with $code: $(grep '^\[  FAILED  \]' "$log" | tail -n 1)"
  if [ "$mode" = full ] && grep -c "needs a GPU\|there is no GPU" "$log" >/dev/null; then
    fail "$1 found no GPU"
  fi
}

# What it measures, `finetune plan --machine` can go by.
check_ready() {
  local how=(--save "$out/rates.toml")
  [ "$mode" = full ] || how=(--quick)
  bounded "$finetune" check "$deck" "${usual[@]}" "train.output=$runs/check" "${how[@]}"
}

gpu_twice() {
  train "$1.first" gpu 0 "train.max_steps=$few" "train.determinism=$2"
  train "$1.second" gpu 0 "train.max_steps=$few" "train.determinism=$2"
  same_bits "$1.first" "$1.second"
  same_weights "$1.first" "$1.second"
}

restarted() {
  train whole gpu 0 "train.max_steps=$many"
  train parts gpu 75 "train.max_steps=$many" "train.stop_after_steps=$few"
  train parts gpu 0 "train.max_steps=$many"
  same_bits whole parts
  same_weights whole parts
  bounded "$finetune" verify "$runs/parts"
}

moved_to_the_cpu_and_back() {
  train moved gpu 75 "train.max_steps=$many" "train.stop_after_steps=$few"
  train moved cpu 75 "train.max_steps=$many" "train.stop_after_steps=2"
  train moved gpu 0 "train.max_steps=$many"
  run_numbers same "$runs/whole/metrics.jsonl" "$runs/moved/metrics.jsonl" 2e-2
}

generates() {
  local model=$root/inputs/quickstart/model
  bounded "$finetune" generate "$model" "Name a colour." --max-tokens 8 --device gpu >"$work/gpu.txt"
  bounded "$finetune" generate "$model" "Name a colour." --max-tokens 8 --device cpu >"$work/cpu.txt"
  cat "$work/gpu.txt"
  [ -s "$work/gpu.txt" ] || fail "nothing was generated"
  diff "$work/gpu.txt" "$work/cpu.txt" || fail "the GPU answers otherwise than the CPU"
}

# Every way of computing the same thing has the same bits.
recomputed() {
  train recompute_none gpu 0 "train.max_steps=$few" train.activation_checkpointing=none
  for way in selective full; do
    train "recompute_$way" gpu 0 "train.max_steps=$few" "train.activation_checkpointing=$way"
    same_bits recompute_none "recompute_$way"
  done
  train offloaded gpu 0 "train.max_steps=$few" train.activation_checkpointing=none train.offloaded_blocks=2
  same_bits recompute_none offloaded
}

communicates_alone() {
  train alone gpu 0 "train.max_steps=$few" "$@"
  FINETUNE_COMMUNICATE_ALONE=1 train communicating gpu 0 "train.max_steps=$few" "$@"
  same_bits alone communicating
  FINETUNE_COMMUNICATE_ALONE=1 train in_turn gpu 0 "train.max_steps=$few" parallel.overlap=false "$@"
  same_bits alone in_turn
}

communicates_alone_in_topology() {
  rm -rf "$runs"/{alone,communicating,in_turn}
  communicates_alone train.determinism=topology
}

# family NAME FAMILY TOLERANCE [key=value...]
family() {
  of_family "$2"
  as_on_cpu "$1" "$few" "$3" "${@:4}"
}

packed_base() {
  bounded "$finetune" quantize "$root/inputs/quickstart/model" "$work/nf4"
  as_on_cpu packed_base "$few" 2e-2 "model.path=$work/nf4" model.init=pretrained adapter.name=qlora
}

call_a() {
  prepare_decks
  few=5
  many=12
  check nccl 60 gtests test_unit_comm '*roup*'
  check shard 60 gtests test_unit_shard
  check model 60 gtests test_unit_model
  check gpu_test 90 gtests gpu_test
  check ready 60 check_ready
  check fp32 30 as_on_cpu fp32 20 1e-4 precision.mode=32-true
  check bf16_mixed 30 as_on_cpu bf16_mixed 12 2e-2 precision.mode=bf16-mixed
  check bf16_true 30 as_on_cpu bf16_true 12 2e-2 precision.mode=bf16-true
  check fp16_mixed 30 as_on_cpu fp16_mixed 12 2e-2 precision.mode=16-mixed
  check same_bits_run 20 gpu_twice run run
  check same_bits_topology 20 gpu_twice topology topology
  check restarted 30 restarted
  check moved 30 moved_to_the_cpu_and_back
  check generate 15 generates
  check communicate_alone 30 communicates_alone
  check communicate_alone_topology 30 communicates_alone_in_topology
  check recompute 30 recomputed
  # Frozen weights and adapters of single precision, so that little but the adapter's arithmetic is compared.
  local lora=(adapter.name=lora adapter.lora_r=8 optimizer.lr=5e-3 precision.mode=32-true)
  check lora 15 as_on_cpu lora "$few" 1e-3 "${lora[@]}"
  check lora_dropout 15 as_on_cpu lora_dropout "$few" 1e-3 "${lora[@]}" adapter.lora_dropout=0.05
  check dora 15 as_on_cpu dora "$few" 1e-3 "${lora[@]}" adapter.use_dora=true
  check ia3 15 as_on_cpu ia3 "$few" 1e-3 adapter.name=ia3 optimizer.lr=5e-3 precision.mode=32-true
  check qlora 15 as_on_cpu qlora "$few" 2e-2 adapter.name=qlora
  check qlora_single 15 as_on_cpu qlora_single "$few" 2e-2 adapter.name=qlora adapter.double_quant=false
  check qlora_packed 20 packed_base
  check packing 15 as_on_cpu packing "$few" 2e-2 data.packing=true
  check window 15 family window mistral 1e-3 precision.mode=32-true
  check window_packed 15 family window_packed mistral 2e-2 data.packing=true
  check chunks 15 family chunks llama4 1e-3 precision.mode=32-true
  check experts 20 family experts qwen3_moe 1e-3 precision.mode=32-true
  check adamw8bit 15 as_on_cpu adamw8bit "$few" 2e-2 optimizer.name=adamw8bit
  check lion 15 as_on_cpu lion "$few" 2e-2 optimizer.name=lion optimizer.lr=1e-4
  check offload 15 as_on_cpu offload "$few" 2e-2 optimizer.offload=true
  check offload_topology 15 as_on_cpu offload_topology "$few" 2e-2 optimizer.offload=true train.determinism=topology
  check any_order 15 as_on_cpu any_order "$few" 2e-2 train.determinism=off
}
