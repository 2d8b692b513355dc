#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long run: builds the fuzz targets and runs them one after the other, then prints a table.
#   tests/fuzz/run.sh [seconds per target, default 600] [target...]
# Exit code: 0 without a finding, 1 with one. Findings and logs lie in build/fuzz/findings/.
set -euo pipefail

# shellcheck source=../../jobscripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../jobscripts/setup.sh"

seconds=${1:-600}
shift || true
packages+=(clang libclang-rt-dev libomp-dev)
set_up_machine
find_clang
[ -n "$clang" ] || stop "clang++" "there is none with libFuzzer" "the fuzz targets are part of it" "Install clang and libclang-rt-dev."
configure "$build/fuzz" "CMAKE_CXX_COMPILER=$clang" FINETUNE_FUZZ=ON FINETUNE_WERROR=ON \
  CMAKE_DISABLE_PRECOMPILE_HEADERS=ON CMAKE_UNITY_BUILD=ON CMAKE_UNITY_BUILD_BATCH_SIZE=16 \
  CMAKE_BUILD_TYPE=Sanitize "CMAKE_CXX_FLAGS_SANITIZE=-O1 -g1 -D_GLIBCXX_ASSERTIONS"
compile "$build/fuzz"
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(archive arrow deck import index jinja jsonl manifest mds megatron parquet reshard safetensors table tokenizer)

mkdir -p "$build/fuzz/findings"
cd "$build/fuzz/findings"
code=0
table=$(printf '%-12s %12s %8s %10s %s' target runs seconds coverage findings)
for target in "${targets[@]}"; do
  say "fuzzing $target for $seconds s"
  start=$SECONDS
  found=0
  "$root/tests/fuzz/fuzz.sh" "$build/fuzz/fuzz_$target" "-max_total_time=$seconds" \
    "-artifact_prefix=$target-" >"$target.log" 2>&1 || found=1
  [ $found = 0 ] || code=1
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$target.log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$target.log" | tail -n 1)
  table+=$'\n'$(printf '%-12s %12s %8s %10s %s' "$target" "${runs:-?}" $((SECONDS - start)) "${coverage:-?}" $found)
done
printf '%s\n' "$table"
exit $code
