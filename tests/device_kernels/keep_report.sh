#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# keep_report.sh COMPILER ARGUMENTS...: runs the compiler, and keeps what it says next to the object file.
set -euo pipefail

object=""
previous=""
for word in "$@"; do
  [ "$previous" != -o ] || object=$word
  previous=$word
done
code=0
"$@" 2>"$object.said" || code=$?
[ $code -eq 0 ] || cat "$object.said" >&2
exit $code
