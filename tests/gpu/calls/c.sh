# shellcheck shell=bash disable=SC2154,SC2034  # variables are shared by what run.sh sources
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh: what happens when memory ends, when somebody ends the run, and when work is done in another order.

# The checker of CUDA's memory around two steps; what it finds is in its log.
sanitized() {
  local name=$1 tool=$2 log=$out/sanitizer-$1.txt code=0 checker
  shift 2
  checker=$(command -v compute-sanitizer) ||
    skip "there is no compute-sanitizer here"
  of_family llama
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 bounded "$checker" --tool "$tool" --error-exitcode 9 --log-file "$log" \
    "$finetune" "$deck" "${usual[@]}" train.device=gpu train.max_steps=2 "train.output=$runs/$name" "$@" || code=$?
  tail -n 5 "$log"
  case $code in
    0) ;;
    9) fail "$(grep -m 1 '=========.*\(Invalid\|Uninitialized\|error\)' "$log")" ;;
    *) return $code ;;
  esac
}

sanitized_communication() {
  FINETUNE_COMMUNICATE_ALONE=1 sanitized "$@"
}

# A plan that says no.
refused_by_the_plan() {
  train large gpu 69 train.micro_batch=200000 train.global_batch=200000
  grep -c 'of memory per rank' "$runs/large.log" >/dev/null || fail "nothing is said of memory"
}

# A plan that says yes, and an allocator that says no.
out_of_memory() {
  local batch=512
  [ "$mode" = full ] || batch=4
  PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.004 FINETUNE_SIMULATED_LEFT_KIB=300 train small gpu 69 \
    train.max_steps=3 "train.micro_batch=$batch" "train.global_batch=$batch"
  grep -c 'memory of GPU' "$runs/small.log" >/dev/null || fail "it is not said that the GPU's memory ran out"
  grep -c 'frame #' "$runs/small.log" >/dev/null && fail "frames of C++ are printed"
  return 0
}

hidden_gpu() {
  CUDA_VISIBLE_DEVICES='' FINETUNE_SIMULATED_GPUS=0 train hidden gpu 69 train.max_steps=1
  local words='CUDA_VISIBLE_DEVICES names none'
  [ "$mode" = full ] || words='this node has none'
  grep "$words" "$runs/hidden.log" || fail "it is not said that no GPU is visible"
}

# Settings of a run to which something happens, and what makes its steps take a while meanwhile.
lasting=(train.max_steps=14)
slow_steps='data.next:0:*:slow=150'

# wait_for_steps NAME PID: returns when the run has three steps.
wait_for_steps() {
  local metrics=$runs/$1/metrics.jsonl
  while [ $SECONDS -lt "$deadline" ]; do
    if [ "$(grep -c '"loss"' "$metrics" 2>/dev/null)" -ge 3 ] 2>/dev/null; then return; fi
    kill -0 "$2" 2>/dev/null || fail "the run $1 ended before its third step"
    sleep 0.05
  done
  fail "the run $1 did not get to its third step"
}

# start_lasting NAME [key=value...]: sets pid. Not in `bounded`, whose own process would get the signal.
start_lasting() {
  local name=$1
  shift
  FINETUNE_FAULT=$slow_steps "$finetune" "$deck" "${usual[@]}" "${lasting[@]}" train.device=gpu \
    "train.output=$runs/$name" "$@" >"$runs/$name.log" 2>&1 &
  pid=$!
  wait_for_steps "$name" $pid
}

undisturbed() {
  train undisturbed gpu 0 "${lasting[@]}"
}

asked_to_stop() {
  local code=0
  start_lasting asked
  kill -TERM $pid
  wait $pid || code=$?
  [ $code -eq 75 ] || fail "a run that was asked to stop ended with $code, not 75: $(tail -n 1 "$runs/asked.log")"
  train asked gpu 0 "${lasting[@]}"
  same_bits undisturbed asked
  same_weights undisturbed asked
}

killed() {
  local code=0
  start_lasting killed checkpoint.save_steps=1
  kill -KILL $pid
  wait $pid || code=$?
  [ $code -eq 137 ] || fail "a run that was killed ended with $code"
  train killed gpu 0 "${lasting[@]}"
  same_bits undisturbed killed
  same_weights undisturbed killed
}

# kill -9 between a checkpoint's files and its manifest.
killed_in_a_save() {
  FINETUNE_FAULT=ckpt.manifest_rename:0:2:kill train killed_in_a_save gpu 137 "${lasting[@]}" checkpoint.save_steps=4
  train killed_in_a_save gpu 0 "${lasting[@]}" checkpoint.save_steps=4
  same_bits undisturbed killed_in_a_save
  bounded "$finetune" verify "$runs/killed_in_a_save"
}

# in_another_order NAME NAME=VALUE...: the same bits under a setting that changes when things happen.
in_another_order() {
  local name=$1 start
  shift
  start=$(date +%s%N)
  env_train "$@" -- "$name" gpu 0 "${lasting[@]}"
  figure "order/$name" $((($(date +%s%N) - start) / 1000000)) ms
  same_bits undisturbed "$name"
  same_weights undisturbed "$name"
}

# env_train NAME=VALUE... -- ARGUMENTS OF train
env_train() {
  while [ "$1" != -- ]; do
    export "${1?}"
    shift
  done
  shift
  train "$@"
}

profiled() {
  local ncu code=0
  [ "$mode" = full ] || skip "ncu profiles CUDA"
  ncu=$(command -v ncu) || skip "there is no ncu here"
  prepare_shapes
  # The launches of a step in the middle: what ncu times and how far it is from the roofline.
  bounded "$ncu" --clock-control none --launch-skip 3000 --launch-count 60 --section SpeedOfLight \
    --log-file "$out/ncu.txt" "$finetune" "$work/shapes.toml" "model.path=$work/1b" data.max_seq_length=2048 \
    train.micro_batch=2 train.global_batch=2 train.max_steps=3 train.device=gpu "train.output=$large/profiled" \
    checkpoint.async=false checkpoint.read_back=false "data.cache_dir=$work/token-cache" || code=$?
  rm -rf "$large"
  [ $code -eq 0 ] || return $code
  grep -c 'Speed Of Light' "$out/ncu.txt" || fail "ncu profiled nothing"
}

call_c() {
  prepare_decks
  check undisturbed 20 undisturbed
  check refused_by_the_plan 15 refused_by_the_plan
  check out_of_memory 20 out_of_memory
  check hidden_gpu 10 hidden_gpu
  check asked_to_stop 30 asked_to_stop
  check killed 30 killed
  check killed_in_a_save 30 killed_in_a_save
  check launch_blocking 20 in_another_order launch_blocking CUDA_LAUNCH_BLOCKING=1
  check one_connection 20 in_another_order one_connection CUDA_DEVICE_MAX_CONNECTIONS=1
  check no_caching_allocator 20 in_another_order no_caching_allocator PYTORCH_NO_CUDA_MEMORY_CACHING=1
  check communicating 20 in_another_order communicating FINETUNE_COMMUNICATE_ALONE=1
  check one_thread 20 in_another_order one_thread OMP_NUM_THREADS=1
  check memcheck 60 sanitized memcheck memcheck
  check memcheck_communicating 60 sanitized_communication memcheck_communicating memcheck
  check initcheck 60 sanitized initcheck initcheck
  check profiled 60 profiled
}
