#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one fuzz target from its seeds: fuzz.sh BINARY [libFuzzer options]. Inputs that reach new code are
# kept in a temporary folder only; a finding is written to the current folder and its name printed.
set -euo pipefail

binary=$1
shift
name=$(basename "$binary")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
seeds=$here/seeds/${name#fuzz_}
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
dictionary=$here/seeds/${name#fuzz_}.dict
[ ! -f "$dictionary" ] || set -- "-dict=$dictionary" "$@"
export UBSAN_OPTIONS=print_stacktrace=1
"$binary" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "$@" "$new" "$seeds"
