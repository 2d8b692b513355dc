#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The calls of run.sh on the simulated GPU, where they are quick; and that they see what goes wrong.
#   rehearsal_test.sh BUILD_FOLDER WORK_FOLDER
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=../install/common.sh
. "$here/../install/common.sh"

export FINETUNE_BUILD=$1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
rm -rf "$2"
mkdir -p "$2"
cd "$2" || exit 1

# rehearsed CALL PATTERN [NAME=VALUE...]: the checks whose names match, with results in the folder of the call. Sets code.
rehearsed() {
  code=0
  env OUT="$PWD/$1" FINETUNE_ONLY="$2" "${@:3}" "$here/run.sh" "$1" rehearse >"$1.log" 2>&1 || code=$?
  cat "$1.log"
}

rehearsed a '^(machine|nccl|ready|fp32|same_bits_topology|restarted|moved|generate|communicate_alone|recompute|qlora_packed|window_packed|experts)$'
expect "nothing fails in call a" 0 $code
expect "its checks pass" 13 "$(grep -c '^PASS' a/results-a.txt)"
rehearsed b '^(bench|step_1b_2k|step_8b_qlora_2k|launches_1b_2k)$'
expect "nothing fails in call b" 0 $code
expect "its checks pass" 4 "$(grep -c '^PASS' b/results-b.txt)"
expect "each figure is a line of JSON that names device and date" "$(wc -l <b/figures-b.jsonl)" \
  "$(grep -c '^{.*"device": *"simulated".*}$' b/figures-b.jsonl)"
expect "launches per step are counted" 1 "$(grep -c '"launches_per_step": [1-9]' b/figures-b.jsonl)"
rehearsed c '^(undisturbed|refused_by_the_plan|out_of_memory|hidden_gpu|asked_to_stop|killed|killed_in_a_save|one_connection|memcheck)$'
expect "nothing fails in call c" 0 $code
expect "its checks pass" 8 "$(grep -c '^PASS' c/results-c.txt)"
rehearsed first '^(weights|same_bits_run|step_8b_lora_4k|torch_8b_lora_4k|step_8b_fp8_2k|bench|undisturbed|asked_to_stop)$'
expect "nothing fails in call first" 0 $code
expect "all of it passes but what needs memory for 8B, or transformers" 8 \
  "$(grep -cE '^(PASS|SKIP (weights|torch_8b_lora_4k):)' first/results-first.txt)"
expect "our steps pass" 2 "$(grep -c '^PASS step_8b' first/results-first.txt)"
for call in a b c first; do
  expect "call $call leaves eight files at most" 1 $(($(find $call -type f | wc -l) <= 8))
  expect "none of them is large" "" "$(find $call -type f -size +16M)"
done

rehearsed a '^(fp32|restarted)$' FINETUNE_FAULT=step.bwd:0:3:exc
expect "a program that breaks is a failure" 1 $code
expect "each check of it fails" 2 "$(grep -c '^FAIL' a/results-a.txt)"
rehearsed a '^(fp32|nccl)$' FINETUNE_BUDGET_S=1
expect "what has no time is no failure" 0 $code
expect "it is skipped with the reason" 2 "$(grep -c '^SKIP .* of the budget' a/results-a.txt)"

row() { printf '{"step": 1, "loss": %s, "grad_norm": 1.0, "lr": 0.1, "tokens_per_s": 9.0, "step_s": 1.0}\n' "$1"; }
row 2.0 >one.jsonl
row 2.0000000000000004 >other.jsonl
row NaN >none.jsonl
holds "equal numbers are the same" "$here/run_numbers.py" same one.jsonl one.jsonl 0
holds "a last bit is within a tolerance" "$here/run_numbers.py" same one.jsonl other.jsonl 1e-4
for pair in "one other 0" "one none 1e-4" "none one 1e-4"; do
  read -r first second tolerance <<<"$pair"
  expect "$pair are not the same" 1 "$("$here/run_numbers.py" same "$first.jsonl" "$second.jsonl" "$tolerance" >/dev/null 2>&1; echo $?)"
done
"$here/run_numbers.py" shape tiny config.json
echo 100 >memory
echo "needed most: planned 200 MiB, of which tensors 100 MiB; used by tensors 120 MiB" >as_planned
echo "needed most: planned 200 MiB, of which tensors 100 MiB; used by tensors 300 MiB" >too_much
holds "what was planned is enough" "$here/run_numbers.py" step name config.json one.jsonl as_planned H100 96 memory
expect "more memory than planned is a failure" 1 \
  "$("$here/run_numbers.py" step name config.json one.jsonl too_much H100 96 memory >/dev/null 2>&1; echo $?)"

code=0
"$here/run.sh" d >words.log 2>&1 || code=$?
expect "there is no call d" 64 $code
if nvidia-smi -L >/dev/null 2>&1; then
  echo "skipped: there is a GPU here"
else
  code=0
  OUT=$PWD/none "$here/run.sh" a >none.log 2>&1 || code=$?
  expect "without a GPU nothing is tested" 69 $code
  expect "and it is said" 1 "$(grep -c 'there is no GPU here' none.log)"
fi
finish
