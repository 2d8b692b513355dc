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
repo="repos:finetune:$top/spack/spack_repo/finetune"
rm -rf "$work"
mkdir -p "$work"

holds "audit" spack -c "$repo" audit packages finetune
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
