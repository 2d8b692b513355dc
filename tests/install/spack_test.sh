#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# With a Spack on the PATH: the recipe passes its audit, and both environments have a solution that builds this
# tree.
#   spack_test.sh WORK_FOLDER
# Exit code 77: there is no Spack here.
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
work=$1
case "$(spack --version 2>/dev/null)" in
  "" | 0.*) echo "skipped: there is no Spack 1 here" && exit 77 ;;
esac
rm -rf "$work"
mkdir -p "$work/scope"
printf 'repos:\n  finetune: %s\n' "$top/spack/spack_repo/finetune" >"$work/scope/repos.yaml"

holds "audit" spack -C "$work/scope" audit packages finetune
refused=$(spack -C "$work/scope" spec finetune+rocm amdgpu_target=gfx942 2>&1)
expect "AMD's GPUs are refused with the reason" 1 "$(grep -c "served by CUDA and NCCL alone" <<<"$refused")"
for name in cpu cuda; do
  # In a copy, which spack may write to.
  mkdir -p "$work/spack/env" && cp -r "$top/spack/env/site" "$work/spack/env/"
  mkdir -p "$work/spack/env/$name"
  sed "s|\.\./\.\./\.\.$|$top|; s|\.\./\.\./spack_repo|$top/spack/spack_repo|" "$top/spack/env/$name/spack.yaml" \
    >"$work/spack/env/$name/spack.yaml"
  holds "env/$name" spack -e "$work/spack/env/$name" concretize
  expect "env/$name builds this tree" 1 "$(grep -c "\"dev_path\":\"$top\"" "$work/spack/env/$name/spack.lock")"
done
finish
