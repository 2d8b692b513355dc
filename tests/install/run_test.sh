#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Works with an installed finetune as its users do: from a folder of their own, with decks of the prefix.
#   run_test.sh PREFIX WORK_FOLDER
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# As users have it, not as support/environment.cmake sets it for the other tests.
unset OMP_WAIT_POLICY OMPI_MCA_pml

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
prefix=$1
inputs=$prefix/share/finetune/inputs
rm -rf "$2"
mkdir -p "$2"
cd "$2" || exit 1

# As an administrator leaves it. Root may write all the same, so what is there is compared at the end.
chmod -R a-w "$prefix"
trap 'chmod -R u+w "$prefix"' EXIT
# Names, sizes, and when a byte or an attribute of each last changed.
fingerprint() {
  find "$prefix" -printf '%P %y %s %C@\n' | sort
}
fingerprint >before

holds "it starts" "$prefix/bin/finetune" --version
expect "it says with which libtorch" 1 "$(grep -c libtorch <<<"$said")"
"$prefix/bin/finetune" --reference >reference.toml
holds "its reference is the one that lies there" cmp reference.toml "$inputs/reference.toml"

holds "a recipe is planned" "$prefix/bin/finetune" plan "$inputs/recipes/llama-3.1-8b-full-1x8.toml" \
  --ranks 8 --gpu --memory 80GiB
holds "all data of the quickstart are found" "$prefix/bin/finetune" plan "$inputs/quickstart.toml" --data

if command -v mpirun >/dev/null; then
  holds "the quickstart trains on two ranks" "$top/tests/support/mpirun.sh" 2 "$prefix/bin/finetune" \
    "$inputs/quickstart.toml" train.max_steps=3 train.global_batch=4 train.micro_batch=2 \
    train.validate_steps=0 data.validation_path= metrics.answers=0
  # The quickstart's own train.output, below where the user is.
  expect "three steps are reported" 3 "$(grep -c '"loss"' build/quickstart/metrics.jsonl)"
  holds "it goes on on one rank, without mpirun" "$prefix/bin/finetune" \
    "$inputs/quickstart.toml" train.max_steps=4 train.global_batch=4 train.micro_batch=2 \
    train.validate_steps=0 data.validation_path= metrics.answers=0
  expect "one more is reported" 4 "$(grep -c '"loss"' build/quickstart/metrics.jsonl)"
  holds "the checkpoint is whole" "$prefix/bin/finetune" verify build/quickstart
  holds "it is exported" "$prefix/bin/finetune" export build/quickstart exported
  holds "what was exported generates" "$prefix/bin/finetune" generate exported "Name a colour." --max-tokens 2
else
  echo "skipped: no mpirun here"
fi

fingerprint >after
expect "the prefix is as it was" "" "$(diff before after)"
finish
