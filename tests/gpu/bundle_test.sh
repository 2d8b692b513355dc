#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The bundle on a bare Debian 12 without compiler, MPI and GPU, where libtorch is that of a Python: everything starts,
# the CPU trains, and run.sh says that there is no GPU.
#   bundle_test.sh FOLDER_OF_LIBTORCH WORK_FOLDER
# Exit code 77 where there can be no bare system, or no bundle was made.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
top=$(cd "$here/../.." && pwd -P)
# shellcheck source=../install/common.sh
. "$here/../install/common.sh"
# shellcheck source=../install/bare_root.sh
. "$here/../install/bare_root.sh"

packages=$(cd "$1/.." && pwd -P)
mkdir -p "$2"
cd "$2" || exit 1
[ -f "$top/.gpu/bundle.tar.gz" ] || skip "there is no bundle: tests/gpu/bundle.sh makes one"
bare_root_or_skip
trap remove_bare_root EXIT
make_bare_root || exit 1
in_bare_root sh -c 'apt-get update -q && apt-get install -q -y --no-install-recommends python3' >apt.log 2>&1 ||
  skip "python3 could not be installed: $(tail -n 1 apt.log)"
copy_sources "$top" /finetune inputs tests jobscripts
mkdir -p "$bare_root/finetune/.gpu"
cp "$top/.gpu/bundle.tar.gz" "$bare_root/finetune/.gpu"

# Of a Python with all of libtorch's packages; here those of the toolkit stand for some of them.
toolkit=
for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib64 "${CUDA_HOME:-/usr/local/cuda}"/lib; do
  [ ! -e "$folder/libcublas.so.13" ] || toolkit=$folder
done
[ -n "$toolkit" ] || skip "there is no CUDA toolkit in ${CUDA_HOME:-/usr/local/cuda}"
bare_binds=("$packages" /opt/python/site "$toolkit" /opt/toolkit)
code=0
in_bare_root PYTHONPATH=/opt/python/site LD_LIBRARY_PATH=/opt/toolkit OUT=/out env -u HOME \
  /finetune/tests/gpu/run.sh a >run.log 2>&1 </dev/null || code=$?
cat run.log
expect "without a GPU it ends as such" 69 $code
expect "nothing fails" 0 "$(grep -c '^FAIL' run.log)"
expect "all programs start and work on the CPU" 7 "$(grep -c '^PASS' run.log)"
expect "the reason is said once" 1 "$(grep -c '^error: .*there is no GPU here' run.log)"
expect "the version is printed" 1 "$(grep -c '^processor  needs .* avx2' "$bare_root/out/machine-a.txt")"
finish
