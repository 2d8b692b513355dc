#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The installed program, on a processor that lacks what it was built for: QEMU's of 2008.
#   processor_test.sh PREFIX
# Exit code 77: it was not built for a newer one, or there is no QEMU here; then only that it would check is seen.
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=bare_root.sh
. "$(dirname "${BASH_SOURCE[0]}")/bare_root.sh"

program=$1/bin/finetune
needs=$("$program" --version | sed -n 's/^processor *//p')
expect "it says what it needs" yes "$([ -n "$needs" ] && echo yes)"
# What runs before every initialiser is an array of its own.
expect "it looks before anything runs" 1 "$(readelf --dynamic --wide "$program" | grep -c '(PREINIT_ARRAYSZ)')"

[ $failures -eq 0 ] || finish
case " $needs " in *" avx2 "*) ;; *) skip "it was built for processors without AVX2" ;; esac
command -v qemu-x86_64 >/dev/null || skip "there is no qemu-x86_64 here"
code=0
said=$(env -u SLURM_LOCALID -u OMPI_COMM_WORLD_LOCAL_RANK qemu-x86_64 -cpu Nehalem "$program" --version 2>&1) || code=$?
expect "on a Nehalem: exit code" 69 $code
expect "one line says why" 1 "$(grep -c '' <<<"$said")"
expect "which lacks AVX2, among others" 1 \
  "$(grep -c '^error: .*: the processor, .*Nehalem.*, lacks .*avx2.* (this finetune was built .* and needs ' <<<"$said")"
expect "for which it can be built" 1 "$(grep -c 'Build it for x86-64-v2, which runs here: ' <<<"$said")"
finish
